package evlog

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Holder is what the last writer wrote into LOCK.
type Holder struct {
	PID     int // 0: nobody, or it cannot be read
	Host    string
	Started time.Time
	// Alive tells whether a process with this id runs on this host now. After
	// a crash that may be another one with the same number.
	Alive bool
}

// writerLock is the single writer's hold on the log: flock on the directory
// where the system has it, so that a removed LOCK refuses a second writer all
// the same, and on LOCK.
type writerLock struct {
	dir  vfs.Dir
	held []vfs.Lock
}

// lockWriter takes the lock or says who has it.
func lockWriter(dir vfs.Dir, clock Clock) (*writerLock, error) {
	l := &writerLock{dir: dir}
	take := func(lock vfs.Lock, err error) error {
		if err == nil {
			l.held = append(l.held, lock)
		}
		return err
	}
	err := take(dir.LockDir())
	if err == nil {
		err = prepareLockFile(dir)
	}
	if err == nil {
		err = take(dir.Lock(format.LockName))
	}
	if err == nil {
		err = l.sign(clock)
	}
	if err != nil {
		err = errors.Join(err, l.release())
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("evlog: open %w", &LockedError{Path: dir.Path(), Holder: readHolder(dir)})
		}
		return nil, fmt.Errorf("evlog: lock %s: %w", dir.Path(), err)
	}
	return l, nil
}

// prepareLockFile creates LOCK with its newline in byte 0. That byte is the
// locked one: on Windows no other handle can write it later, nor read it.
func prepareLockFile(dir vfs.Dir) error {
	f, err := dir.OpenFile(format.LockName, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		_, err = f.WriteAt([]byte("\n"), 0)
	}
	return errors.Join(err, f.Close())
}

// sign writes who holds the lock behind byte 0, for people to read.
func (l *writerLock) sign(clock Clock) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text := fmt.Sprintf("%d %s %d\n", os.Getpid(), strings.ReplaceAll(host, " ", "_"), clock.Now().UnixMilli())
	return l.write(text)
}

func (l *writerLock) write(text string) error {
	f, err := l.dir.OpenFile(format.LockName, os.O_RDWR, filePerm)
	if err != nil {
		return err
	}
	err = f.Truncate(1)
	if err == nil && text != "" {
		_, err = f.WriteAt([]byte(text), 1)
	}
	return errors.Join(err, f.Close())
}

// release gives the lock up; the process's end does the same. LOCK stays: a
// new file of that name would be another lock.
func (l *writerLock) release() error {
	var err error
	if len(l.held) == 2 {
		// Nobody holds the log now. Only information: errors do not matter.
		_ = l.write("")
	}
	for i := len(l.held) - 1; i >= 0; i-- {
		err = errors.Join(err, l.held[i].Unlock())
	}
	l.held = nil
	return err
}

// readHolder reads LOCK without touching the lock.
func readHolder(dir vfs.Dir) Holder {
	f, err := dir.OpenFile(format.LockName, os.O_RDONLY, 0)
	if err != nil {
		return Holder{}
	}
	defer f.Close()
	var b [512]byte
	n, _ := f.ReadAt(b[:], 1)
	fields := strings.Fields(string(b[:n]))
	if len(fields) < 3 {
		return Holder{}
	}
	pid, err1 := strconv.Atoi(fields[0])
	ms, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil || pid <= 0 {
		return Holder{}
	}
	h := Holder{PID: pid, Host: fields[1], Started: time.UnixMilli(ms).UTC()}
	if host, err := os.Hostname(); err == nil && strings.ReplaceAll(host, " ", "_") == h.Host {
		h.Alive = processAlive(pid)
	}
	return h
}
