package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Open opens the log in dir for writing, and creates it if there is none. Nil
// options mean defaults. There is one writer at a time: ErrLocked.
//
// After a crash, opening cuts what was torn off the end of the active segment
// and makes everything before it durable. Acknowledged data that is damaged or
// missing is ErrCorrupt, and nothing is changed. After a clean close, that the
// names of the files are durable is made sure of beside what comes next: the first
// append, flush or read waits for it, and where it fails the log is poisoned
// (ErrPoisoned). ctx ends a long opening; it has no meaning for the opened log.
func Open(ctx context.Context, dir string, opts *Options) (l *Log, err error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, wrap("open "+dir, err)
	}
	d, err := openDir(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	l = &Log{
		dir:    &stickyDir{Dir: d},
		opts:   o,
		clock:  o.Clock,
		logger: o.Logger,
		turn:   make(chan struct{}, 1),
		dead:   make(chan struct{}),
	}
	l.onEvent = o.OnEvent
	l.stamps.use(o.Clock)
	opened := false
	defer func() {
		if !opened { // an error, or a caller's hook ended the goroutine
			l, err = nil, errors.Join(err, l.abandon())
		}
	}()
	err = l.open(ctx)
	opened = err == nil
	return l, err
}

// openDir opens the log's directory, and makes it if needed.
func openDir(ctx context.Context, path string, o Options) (vfs.Dir, error) {
	fsys := vfs.FromContext(ctx)
	if !o.MustExist {
		if err := fsys.MkdirAll(path, dirPerm); err != nil {
			return nil, wrap("open", err)
		}
	}
	d, err := fsys.OpenDir(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("evlog: open %s: %w: the directory is missing", path, ErrNoLog)
		}
		return nil, wrap("open", err)
	}
	if err := refuseNetwork(d, o.AllowNetworkFS); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func refuseNetwork(d vfs.Dir, allow bool) error {
	kind, err := d.Network()
	if err != nil {
		return wrap("find out the file system of "+d.Path(), err)
	}
	if kind != "" && !allow {
		return fmt.Errorf("evlog: open %s: %w (%s)", d.Path(), ErrNetworkFS, kind)
	}
	return nil
}

// open does everything between the open directory and the working log.
func (l *Log) open(ctx context.Context) error {
	if l.opts.MustExist {
		if _, err := mustHold(l.dir); err != nil {
			return err
		}
	}
	lock, err := lockWriter(l.dir, l.clock)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", err, ErrReadOnly)
	}
	if err != nil {
		return err
	}
	l.lock = lock
	names, cut, err := l.recover(ctx)
	if err != nil {
		return err
	}
	if cut.bytes > 0 {
		l.logger.Warn("cut what was not finished off the active segment", "bytes", cut.bytes, "kept as", cut.keptAs)
	}
	if l.opts.Verify == VerifyAll {
		if err := verifyClosed(ctx, l.dir, segmentsOf(names), l.meta.Gaps); err != nil {
			return err
		}
	}
	opened := Event{Kind: EventOpened, Base: l.act.base, Offset: l.act.next, Bytes: cut.bytes, KeptAs: cut.keptAs}
	l.begin(names)
	if err := l.runHook(ctx, opened.Offset); err != nil {
		return err
	}
	l.retain.start()
	l.mu.Lock()
	l.hookOK = l.meta.OpenHook == "" || l.meta.OpenHook == l.opts.OpenHook.Name
	l.mu.Unlock()
	l.event(opened)
	return nil
}

// begin starts the goroutines and makes the recovered state the log's.
func (l *Log) begin(names []string) {
	a := &l.act
	l.id, l.config = l.meta.ID, l.meta.Config.stored()
	l.rollBytes = l.config.rollBytes()
	l.nextOffset, l.segBytes = a.next, a.pos
	l.spacing = a.index.spacing
	l.pub.set(l.position())
	l.closed.below.Store(a.base)
	l.closed.activeRecords.Store(int64(a.index.header.Records))
	l.reader = newLogReader(l)
	l.clocks.start(l.clock, l.meta.JumpedMS)
	l.retain.prepare(l)
	l.compact.prepare(l)
	l.house.start(l, names)
	l.zero.start(l)
	l.zero.use(a.base, a.pos)
	l.flush.start(l)
	l.compact.start()
}

// runHook runs the open hook. The log is recovered and readable, and nothing
// can be appended yet.
func (l *Log) runHook(ctx context.Context, next uint64) (err error) {
	h := l.opts.OpenHook
	if h.Run == nil {
		return nil
	}
	// What it does elsewhere for good, it does because of what it finds here.
	if err := l.dir.settle(); err != nil {
		return wrap("open", err)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("evlog: open hook %q: panic: %v", h.Name, p)
		}
	}()
	s := HookState{
		LogID:  l.id,
		Next:   next,
		Stored: l.meta.OpenHook == h.Name,
		Gaps:   l.meta.Gaps,
		Reader: l.reader,
	}
	if s.Stored {
		s.Note = l.meta.HookNote
	}
	err = h.Run(ctx, s)
	if err != nil {
		return fmt.Errorf("evlog: open hook %q: %w", h.Name, err)
	}
	return nil
}

// abandon ends the goroutines and releases what a failed opening holds.
func (l *Log) abandon() error {
	if l.reader != nil {
		l.compact.stop()
		l.flush.stop()
		l.zero.stop()
		l.retain.stop()
		l.house.stop()
		l.reader.shut()
	}
	var err error
	if l.act.prior != nil {
		err = l.act.dropPrior()
	}
	if l.act.f != nil {
		err = errors.Join(err, l.act.f.Close())
	}
	err = errors.Join(err, l.act.durable.close())
	if l.lock != nil {
		err = errors.Join(err, l.lock.release())
	}
	return errors.Join(err, l.dir.Close())
}

// recover brings the directory into a state that can be appended to, and
// fills in act. It returns the names in the directory. The rules are
// docs/FORMAT.md's, "Opening for writing".
func (l *Log) recover(ctx context.Context) (names []string, cut cutOff, err error) {
	// Names in the page cache are no evidence (I5): what is published, and what
	// changes them, waits.
	l.dir.find()
	l.act.durable.settle = l.dir.settle
	names, err = l.dir.Names()
	if err != nil {
		return nil, cut, wrap("list "+l.dir.Path(), err)
	}
	s, err := l.survey(ctx, names)
	if err != nil {
		return nil, cut, err
	}
	if s.unfinished {
		var base uint64
		if len(s.segments) == 0 {
			base = l.opts.FirstOffset
		}
		err := errors.Join(l.create(base), removeTemps(l.dir, names))
		return []string{format.SegmentName(base)}, cut, err
	}
	if s.durableErr != nil {
		l.logger.Warn("whether all acknowledged records are there cannot be told", "err", s.durableErr)
	}
	changed := l.meta.Config.apply(l.opts)
	if changed {
		if err := l.meta.Config.check(); err != nil {
			return nil, cut, err
		}
	}
	// Refusing to open changes nothing, so everything else comes after.
	if cut, err = l.recoverActive(ctx, s); err != nil {
		return nil, cut, err
	}
	if changed {
		if err := l.configure(); err != nil {
			return nil, cut, err
		}
	}
	return names, cut, removeTemps(l.dir, names)
}

// survey is what opening found before it changes anything.
type survey struct {
	segments   listing
	durable    format.Durable
	durableErr error // why durable is not known
	unfinished bool  // creation did not get to its end, or no record came after
}

// survey reads what says what the log is, and refuses what it must not touch.
func (l *Log) survey(ctx context.Context, names []string) (survey, error) {
	s := survey{segments: segmentsOf(names)}
	s.durable, s.durableErr = readDurable(l.dir)
	if err := s.durableErr; err != nil && !durableUnknown(err) {
		return s, wrap("read DURABLE", err)
	}
	m, metaErr := readMeta(l.dir)
	switch err := metaErr; {
	case err == nil:
		l.meta = m
	case errors.Is(err, ErrVersion):
		return s, fmt.Errorf("evlog: open %s: %w", pathOf(l.dir, format.MetaName), err)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMeta):
		return s, wrap("read log.json", err)
	}
	if len(s.segments) == 0 {
		return s, l.surveyEmpty(&s)
	}
	if s.durableErr == nil && s.durable.Base > s.segments.active() {
		base := s.durable.Base
		return s, fmt.Errorf("evlog: open: %w", corrupt(l.dir, base, 0, base, errors.New("the active segment is missing")))
	}
	var err error
	if s.unfinished, err = neverHeldARecord(ctx, l.dir, l.meta, s); err != nil {
		return s, err
	}
	if l.meta == nil && !s.unfinished {
		return s, fmt.Errorf("evlog: open: %w", &CorruptError{
			Path: pathOf(l.dir, format.MetaName),
			Err:  fmt.Errorf("%w: the log's identity is not known", bare(metaErr)),
		})
	}
	return s, nil
}

// bare is an error of a file without its name.
func bare(err error) error {
	if path, ok := err.(*fs.PathError); ok { //nolint:errorlint // what is around it says more
		return path.Err
	}
	return err
}

// durableUnknown reports whether reading DURABLE said that it is missing or
// damaged, as opposed to a failure of reading.
func durableUnknown(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, format.ErrDurable)
}

// surveyEmpty decides what a directory without any segment is.
func (l *Log) surveyEmpty(s *survey) error {
	committed, err := maxCommitted(l.dir, l.meta)
	if err != nil {
		return wrap("open", err)
	}
	next := max(s.durable.NextOffset, committed)
	if next > 0 {
		return fmt.Errorf("evlog: open: %w", &CorruptError{
			Path: l.dir.Path(), Offset: 0,
			Err: fmt.Errorf("every segment is missing, and offsets below %d were in use", next),
		})
	}
	s.unfinished = true
	return nil
}

// neverHeldARecord reports whether the log is as creation leaves it.
func neverHeldARecord(ctx context.Context, dir vfs.Dir, m *meta, s survey) (bool, error) {
	if len(s.segments) != 1 || s.segments[0] != 0 || s.durable.NextOffset > 0 {
		return false, nil
	}
	f, err := openSegment(dir, 0)
	if err != nil {
		return false, wrap("open", err)
	}
	defer f.Close()
	fr, err := wholeFile(f, 0)
	if err != nil {
		return false, wrap("open", err)
	}
	defer fr.release()
	switch _, _, err := fr.next(); {
	case err == nil:
		return false, nil
	case err != io.EOF && !invalidRecord(err):
		return false, wrap("read segment 0", err)
	}
	// Bytes that are no record may be damage: the ordinary way keeps them.
	if fr.limit > 0 && !onlyZeros(ctx, f, fr.limit) {
		return false, nil
	}
	committed, err := maxCommitted(dir, m)
	return err == nil && committed == 0, ctx.Err()
}

func wholeFile(f vfs.File, base uint64) (frames, error) {
	info, err := f.Stat()
	if err != nil {
		return frames{}, err
	}
	return newFrames(f, 0, info.Size(), base), nil
}

// create makes a new log, or makes the names of one that never held a record
// again: a directory sync may have failed, and then the page cache is no
// evidence of them. A valid log.json is kept. The segment comes last: a directory
// without one is an unfinished creation. DURABLE is as after an interrupted roll
// where base is not 0.
func (l *Log) create(base uint64) error {
	if l.meta == nil {
		l.meta = newMeta(l.clock)
		if l.opts.ID != "" {
			l.meta.ID = l.opts.ID
		}
	}
	l.meta.Config.apply(l.opts)
	if err := l.meta.Config.check(); err != nil {
		return err
	}
	l.meta.Config.fillDefaults()
	if err := l.meta.store(l.dir); err != nil {
		return wrap("create log.json", err)
	}
	if err := l.act.durable.at(l.dir).recreate(format.Durable{}); err != nil {
		return wrap("create DURABLE", err)
	}
	f, err := renewSegment(l.dir, base)
	if err != nil {
		return wrap("create the first segment", err)
	}
	l.act.become(f, base, l.meta.Config.IndexBytes)
	if err := l.dir.SyncParent(); err != nil {
		return wrap("sync the directory above "+l.dir.Path(), err)
	}
	return nil
}

// configure stores options that differ from the stored ones, durably and before
// the first append.
func (l *Log) configure() error {
	if err := l.meta.store(l.dir); err != nil {
		return wrap("store the options in log.json", err)
	}
	l.logger.Info("options stored", "config", l.meta.Config)
	l.event(Event{Kind: EventConfigured})
	return nil
}

// removeTemps removes what unfinished writes left, and what else is in the way of
// the next one's file, but for directories. Those of consumers.json belong to
// whoever holds its lock.
func removeTemps(dir vfs.Dir, names []string) error {
	for _, name := range names {
		if !isTemp(name) || isConsumersTemp(name) {
			continue
		}
		if err := removeTemp(dir, name); err != nil {
			return err
		}
	}
	return removeConsumersTemps(dir, names)
}

func removeTemp(dir vfs.Dir, name string) error {
	if info, err := dir.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	err := dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return wrap("remove an unfinished write", err)
}

func removeConsumersTemps(dir vfs.Dir, names []string) (err error) {
	var lock vfs.Lock
	for _, name := range names {
		if !isConsumersTemp(name) {
			continue
		}
		if lock == nil {
			if lock, err = dir.Lock(format.ConsumersLock); err != nil {
				return nil // somebody is committing; a later opening removes it
			}
			defer func() { err = errors.Join(err, lock.Unlock()) }()
		}
		if err := removeTemp(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// wrap adds what was being done, where the error does not say the same; nil stays
// nil.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	if path, ok := err.(*fs.PathError); ok { //nolint:errorlint // what is around it says more
		verb, what, _ := strings.Cut(doing, " ")
		if verb == path.Op || verb == "read" && what != "" && strings.HasSuffix(path.Path, what) {
			return fmt.Errorf("evlog: %w", err)
		}
	}
	return fmt.Errorf("evlog: %s: %w", doing, err)
}

// mustHold lists the segments of the log in dir, or says what is there instead.
func mustHold(dir vfs.Dir) (listing, error) {
	names, err := listNames(dir)
	if err != nil {
		return nil, wrap("list "+dir.Path(), err)
	}
	if segments := segmentsOf(names); len(segments) > 0 {
		return segments, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("evlog: open %s: %w: the directory is empty", dir.Path(), ErrNoLog)
	}
	for _, name := range names {
		if name != format.DurableName && name != format.MetaName {
			continue
		}
		lost := lostSegments(dir)
		// What it goes by was written after the names were listed, if a writer
		// has just created the log.
		if segments, err := listSegments(dir); err == nil && len(segments) > 0 {
			return segments, nil
		}
		return nil, lost
	}
	return nil, fmt.Errorf("evlog: open %s: %w: the directory holds other files", dir.Path(), ErrNoLog)
}

// lostSegments says what a log's directory without segments is.
func lostSegments(dir vfs.Dir) error {
	if d, err := readDurable(dir); err == nil && d.NextOffset > 0 {
		return fmt.Errorf("evlog: open: %w", &CorruptError{
			Path: dir.Path(),
			Err:  fmt.Errorf("every segment is missing, and offsets below %d were in use", d.NextOffset),
		})
	}
	if committed, err := maxCommitted(dir, metaIfKnown(dir)); err != nil || committed > 0 {
		return fmt.Errorf("evlog: open: %w", &CorruptError{
			Path: dir.Path(),
			Err:  errors.Join(fmt.Errorf("every segment is missing, and consumers have read up to offset %d", committed), err),
		})
	}
	return fmt.Errorf("evlog: open %s: %w: its creation was not finished; opening for writing finishes it", dir.Path(), ErrNoLog)
}
