package evlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func status(t testing.TB, p place) evlog.Status {
	t.Helper()
	r := p.reader(t, nil)
	defer r.Close()
	s, err := r.Status(p.ctx)
	require.NoError(t, err)
	return s
}

func TestMeta_DefaultsAreStored(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	s := status(t, p)
	require.Equal(t, 1, s.Format)
	require.Equal(t, l.ID(), s.ID)
	require.Len(t, s.ID, 36)
	require.NotZero(t, s.Created)
	require.Equal(t, evlog.StoredConfig{
		SegmentBytes: evlog.DefaultSegmentBytes, IndexBytes: evlog.DefaultIndexBytes,
		Sync: evlog.SyncAlways, SyncInterval: evlog.DefaultSyncInterval,
		MinDirtyRatio: evlog.DefaultMinDirtyRatio, MinLag: evlog.DefaultMinLag, TombstoneGrace: evlog.DefaultTombstoneGrace,
	}, s.Config)

	var j map[string]any
	require.NoError(t, json.Unmarshal(p.image(t)["log.json"], &j))
	require.EqualValues(t, 1, j["format"])
	require.Equal(t, l.ID(), j["id"])
	require.NotContains(t, j, "open_hook")
	require.NotContains(t, j, "gaps")
}

func TestMeta_ZeroKeepsAndSetStores(t *testing.T) {
	p, _ := inMem(t)
	first := &evlog.Options{
		SegmentBytes: 1000, SegmentAge: time.Hour, IndexBytes: 50,
		Sync: evlog.SyncInterval, SyncInterval: 7 * time.Millisecond,
	}
	want := evlog.StoredConfig{
		SegmentBytes: 1000, SegmentAge: time.Hour, IndexBytes: 50,
		Sync: evlog.SyncInterval, SyncInterval: 7 * time.Millisecond,
		MinDirtyRatio: evlog.DefaultMinDirtyRatio, MinLag: evlog.DefaultMinLag, TombstoneGrace: evlog.DefaultTombstoneGrace,
	}
	for _, c := range []struct {
		name   string
		opts   *evlog.Options
		change func(*evlog.StoredConfig)
	}{
		{"created", first, func(*evlog.StoredConfig) {}},
		{"nil keeps", nil, func(*evlog.StoredConfig) {}},
		{"zero keeps", &evlog.Options{}, func(*evlog.StoredConfig) {}},
		{"the same changes nothing", first, func(*evlog.StoredConfig) {}},
		{"one field", &evlog.Options{SegmentBytes: 2000}, func(c *evlog.StoredConfig) { c.SegmentBytes = 2000 }},
		{"policy", &evlog.Options{Sync: evlog.SyncFlush}, func(c *evlog.StoredConfig) { c.Sync = evlog.SyncFlush }},
		{"interval alone does not choose the policy", &evlog.Options{SyncInterval: time.Second}, func(c *evlog.StoredConfig) { c.SyncInterval = time.Second }},
		{"negative age turns it off", &evlog.Options{SegmentAge: -time.Millisecond}, func(c *evlog.StoredConfig) { c.SegmentAge = 0 }},
		{"off stays off", nil, func(*evlog.StoredConfig) {}},
		{"compaction on", &evlog.Options{Compact: evlog.On, MinDirtyRatio: 0.25}, func(c *evlog.StoredConfig) { c.Compact, c.MinDirtyRatio = true, 0.25 }},
		{"on stays on", nil, func(*evlog.StoredConfig) {}},
		{"lag and grace", &evlog.Options{MinLag: time.Second, TombstoneGrace: time.Hour}, func(c *evlog.StoredConfig) { c.MinLag, c.TombstoneGrace = time.Second, time.Hour }},
		{"negative lag and grace are none", &evlog.Options{MinLag: -1e6, TombstoneGrace: -1e6}, func(c *evlog.StoredConfig) { c.MinLag, c.TombstoneGrace = 0, 0 }},
		{"none stays none", nil, func(*evlog.StoredConfig) {}},
		{"compaction off", &evlog.Options{Compact: evlog.Off}, func(c *evlog.StoredConfig) { c.Compact = false }},
		{"retention", &evlog.Options{MaxAge: time.Hour, MaxBytes: 1 << 20, MaxRecords: 7}, func(c *evlog.StoredConfig) {
			c.MaxAge, c.MaxBytes, c.MaxRecords = time.Hour, 1<<20, 7
		}},
		{"holds, sorted and each once", &evlog.Options{HoldFor: []string{"b", "a", "b"}, HoldBytes: 9, HoldAge: time.Minute}, func(c *evlog.StoredConfig) {
			c.HoldFor, c.HoldBytes, c.HoldAge = []string{"a", "b"}, 9, time.Minute
		}},
		{"nil keeps holds and limits", &evlog.Options{}, func(*evlog.StoredConfig) {}},
		{"negative turns limits off", &evlog.Options{MaxAge: -1, MaxBytes: -1, MaxRecords: -1, HoldBytes: -1}, func(c *evlog.StoredConfig) {
			c.MaxAge, c.MaxBytes, c.MaxRecords, c.HoldBytes = 0, 0, 0, 0
		}},
		{"an empty list holds for nobody", &evlog.Options{HoldFor: []string{}, HoldAge: -time.Second}, func(c *evlog.StoredConfig) {
			c.HoldFor, c.HoldAge = nil, 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ""
			if _, err := p.fsys.OpenDir(p.dir); err == nil {
				before = string(p.image(t)["log.json"])
			}
			old := want
			c.change(&want)
			l := p.open(t, c.opts)
			require.Equal(t, want, status(t, p).Config, "stored before the first append")
			require.NoError(t, l.Close())
			require.Equal(t, want, status(t, p).Config)
			if reflect.DeepEqual(old, want) && before != "" {
				require.Equal(t, before, string(p.image(t)["log.json"]), "not written without need")
			}
		})
	}
}

// Stored settings rule, not those the process was started with before.
func TestMeta_StoredSegmentSizeIsUsed(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1})
	require.NoError(t, l.Close())
	l = p.open(t, nil)
	appendEach(t, p.ctx, l, numbered(0, 4)...)
	require.Len(t, p.image(t).Bases(), 4)
}

func TestMeta_ChangeIsDurableBeforeTheFirstAppend(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1000})
	appendEach(t, p.ctx, l, rec("k", "v"))
	require.NoError(t, l.Close())
	var events []evlog.EventKind
	l = p.open(t, &evlog.Options{SegmentBytes: 2000, OnEvent: func(e evlog.Event) { events = append(events, e.Kind) }})
	q := onFS(t, m.SyncedImage())
	require.EqualValues(t, 2000, status(t, q).Config.SegmentBytes)
	require.NoError(t, l.Close())
	require.Contains(t, events, evlog.EventConfigured)
}

func TestMeta_UnknownFieldsAreKept(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.NoError(t, l.Close())
	im := p.image(t)
	var j map[string]any
	require.NoError(t, json.Unmarshal(im["log.json"], &j))
	j["later"] = map[string]any{"a": 1}
	j["config"].(map[string]any)["retention"] = "x"
	im["log.json"], _ = json.Marshal(j)
	p.put(t, im)
	l = p.open(t, &evlog.Options{SegmentBytes: 12345})
	require.NoError(t, l.Close())
	j = nil
	require.NoError(t, json.Unmarshal(p.image(t)["log.json"], &j))
	require.Equal(t, map[string]any{"a": 1.0}, j["later"])
	require.Equal(t, "x", j["config"].(map[string]any)["retention"])
	require.EqualValues(t, 12345, j["config"].(map[string]any)["segment_bytes"])
}

// logWith makes a log of n records in memory, closed, and returns its files.
func logWith(t testing.TB, opts *evlog.Options, n int) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	l := p.open(t, opts)
	want := appendEach(t, p.ctx, l, numbered(0, n)...)
	require.NoError(t, l.Close())
	return p.image(t), want
}

func TestMeta_LaterVersionIsErrVersion(t *testing.T) {
	for _, c := range []struct{ name, json string }{
		{"higher", `{"format":2,"id":"x","created_ms":1,"config":{}}`},
		{"much higher, of a form that nobody knows", `{"format":1000000,"config":[1,2,3],"id":7}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			im, _ := logWith(t, nil, 3)
			im["log.json"] = []byte(c.json)
			p, _ := inMem(t)
			p.put(t, im)
			require.ErrorIs(t, p.refused(t, nil), evlog.ErrVersion)
			_, err := evlog.OpenReader(p.ctx, p.dir, nil)
			require.ErrorIs(t, err, evlog.ErrVersion)
			require.NotErrorIs(t, err, evlog.ErrCorrupt)
			_, err = evlog.Verify(p.ctx, p.dir, nil)
			require.ErrorIs(t, err, evlog.ErrVersion)
			_, err = evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
			require.ErrorIs(t, err, evlog.ErrVersion)
			sameImage(t, withoutLock(im), withoutLock(p.image(t)), "nothing was changed")
		})
	}
}

// withoutLock drops LOCK, the one file that a refused writer may write.
func withoutLock(im evtest.Image) evtest.Image {
	im = im.Clone()
	delete(im, "LOCK")
	return im
}

func TestMeta_MissingOrDamaged(t *testing.T) {
	for _, c := range []struct {
		name string
		json []byte // nil: missing
	}{
		{"missing", nil},
		{"empty", []byte{}},
		{"zeros", make([]byte, 100)},
		{"cut off", []byte(`{"format":1,"id":"0b`)},
		{"no id", []byte(`{"format":1,"created_ms":1,"config":{}}`)},
		{"no format", []byte(`{"id":"x"}`)},
		{"format 0", []byte(`{"format":0,"id":"x"}`)},
		{"negative format", []byte(`{"format":-1,"id":"x"}`)},
		{"wrong types", []byte(`{"format":1,"id":5}`)},
		{"an array", []byte(`[]`)},
		{"null", []byte(`null`)},
		{"two documents", []byte(`{"format":1,"id":"x"}{"format":1,"id":"y"}`)},
		{"negative size", []byte(`{"format":1,"id":"x","config":{"segment_bytes":-5}}`)},
		{"unknown policy", []byte(`{"format":1,"id":"x","config":{"sync":"sometimes"}}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			im, want := logWith(t, tiny(), 30)
			old := status(t, placeWith(t, im)).ID
			delete(im, "log.json")
			if c.json != nil {
				im["log.json"] = c.json
			}
			p := placeWith(t, im)
			err := p.refused(t, nil)
			require.Contains(t, err.Error(), "log.json")
			sameImage(t, withoutLock(im), withoutLock(p.image(t)), "a refused writer changed something")

			// Readers go on with a notice.
			r := p.reader(t, nil)
			got, err := readAll(p.ctx, r)
			require.NoError(t, err)
			sameRecs(t, want, got)
			require.Empty(t, r.ID())
			s, err := r.Status(p.ctx)
			require.NoError(t, err)
			require.Error(t, s.MetaErr)

			rep, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
			require.NoError(t, err)
			require.NotEmpty(t, rep.NewID)
			require.NotEqual(t, old, rep.NewID)
			l := p.open(t, nil)
			require.Equal(t, rep.NewID, l.ID())
			off, err := l.Append(p.ctx, rec("k", "v"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, off, uint64(30))
			require.NoError(t, l.Close())
			sameRecs(t, want, p.all(t)[:30])
			p.verified(t)
		})
	}
}

func placeWith(t testing.TB, im evtest.Image) place {
	t.Helper()
	p, _ := inMem(t)
	p.put(t, im)
	return p
}

func TestOpen_MissingDirectory(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		_, err := evlog.OpenReader(p.ctx, p.dir, nil)
		require.ErrorIs(t, err, evlog.ErrNoLog)
		require.ErrorIs(t, p.refused(t, &evlog.Options{MustExist: true}), evlog.ErrNoLog)
		_, err = evlog.Verify(p.ctx, p.dir, nil)
		require.ErrorIs(t, err, evlog.ErrNoLog)
		_, err = p.fsys.OpenDir(p.dir)
		require.Error(t, err, "nothing was created")

		require.NoError(t, p.fsys.MkdirAll(p.dir, 0o700))
		_, err = evlog.OpenReader(p.ctx, p.dir, nil)
		require.ErrorIs(t, err, evlog.ErrNoLog, "an empty directory is no log")
		require.ErrorIs(t, p.refused(t, &evlog.Options{MustExist: true}), evlog.ErrNoLog)
		require.NotContains(t, p.image(t), "log.json")
		l := p.open(t, nil)
		require.NoError(t, l.Close())
		l = p.open(t, &evlog.Options{MustExist: true})
		require.NoError(t, l.Close())
		require.Empty(t, p.all(t))
	})
}

func TestHook_RunsInsideOpenAfterRecovery(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 5)...)
	id := l.ID()
	require.NoError(t, l.Close())

	var states []evlog.HookState
	hook := evlog.Hook{Name: "outbox", Run: func(ctx context.Context, s evlog.HookState) error {
		states = append(states, s)
		recs, err := readAll(ctx, s.Reader)
		if err != nil {
			return err
		}
		sameRecs(t, want, recs)
		return nil
	}}
	l = p.open(t, &evlog.Options{OpenHook: hook})
	require.Len(t, states, 1)
	require.Equal(t, id, states[0].LogID)
	require.EqualValues(t, 5, states[0].Next)
	require.False(t, states[0].Stored)
	require.Empty(t, states[0].Note)
	require.NoError(t, l.RequireHook(p.ctx, "a"))
	require.NoError(t, l.RequireHook(p.ctx, "b"), "a new note takes the old one's place")
	require.NoError(t, l.RequireHook(p.ctx, "b"), "twice is the same")
	require.ErrorIs(t, l.RequireHook(p.ctx, strings.Repeat("x", 1025)), evlog.ErrBadOptions)
	require.Equal(t, "outbox", status(t, p).OpenHook)
	require.NoError(t, l.Close())

	l = p.open(t, &evlog.Options{OpenHook: hook})
	require.Len(t, states, 2)
	require.True(t, states[1].Stored)
	require.Equal(t, "b", states[1].Note)
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
}

func TestHook_FailureFailsOpen(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		run  func(context.Context, evlog.HookState) error
		want string
	}{
		{"error", func(context.Context, evlog.HookState) error { return boom }, "boom"},
		{"panic", func(context.Context, evlog.HookState) error { panic("ouch") }, "ouch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			err := p.refused(t, &evlog.Options{OpenHook: evlog.Hook{Name: "h", Run: c.run}})
			require.Contains(t, err.Error(), c.want)
			if c.name == "error" {
				require.ErrorIs(t, err, boom)
			}
			l := p.open(t, nil)
			_, err = l.Append(p.ctx, rec("k", "v"))
			require.NoError(t, err, "the lock was given back")
		})
	}
}

func TestHook_RequiredButMissing(t *testing.T) {
	p, m := inMem(t)
	run := func(context.Context, evlog.HookState) error { return nil }
	l := p.open(t, &evlog.Options{OpenHook: evlog.Hook{Name: "outbox", Run: run}, SegmentBytes: 100})
	require.NoError(t, l.RequireHook(p.ctx, ""))
	require.Equal(t, "outbox", status(t, onFS(t, m.SyncedImage())).OpenHook, "stored durably")
	want := appendEach(t, p.ctx, l, numbered(0, 5)...)
	require.NoError(t, l.Close())

	for _, c := range []struct {
		name string
		hook evlog.Hook
	}{
		{"no hook", evlog.Hook{}},
		{"another one", evlog.Hook{Name: "other", Run: run}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := p.open(t, &evlog.Options{OpenHook: c.hook})
			_, err := l.Append(p.ctx, rec("k", "v"))
			require.ErrorIs(t, err, evlog.ErrHookRequired)
			_, err = l.Enqueue(p.ctx, rec("k", "v"))
			require.ErrorIs(t, err, evlog.ErrHookRequired)
			r := rec("k", "v")
			r.Offset = 99
			require.ErrorIs(t, l.AppendExact(p.ctx, r), evlog.ErrHookRequired)
			require.ErrorIs(t, l.EnqueueExact(p.ctx, r), evlog.ErrHookRequired)
			// It may maintain.
			require.NoError(t, l.Flush(p.ctx))
			require.NoError(t, l.Roll(p.ctx))
			_, err = l.Reindex(p.ctx, nil)
			require.NoError(t, err)
			sameRecs(t, want, p.all(t))
			require.NoError(t, l.Close())
		})
	}
	_, err := evlog.Reindex(p.ctx, p.dir, nil)
	require.NoError(t, err)
	p.verified(t)
}

func TestHook_RequireWithoutOne(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.Error(t, l.RequireHook(p.ctx, ""))
	require.Empty(t, status(t, p).OpenHook)
}

// What is wrong with log.json keeps its cause for errors.As.
func TestOpen_DamagedMetaKeepsTheCause(t *testing.T) {
	for _, content := range []string{
		`{"format":1,`,
		`{"format":1,"id":7}`,
		`{"format":1,"id":"x","config":{"segment_bytes":"many"}}`,
	} {
		p := placeWith(t, build().segment(0, 0, 1).durable(2, 0).file("log.json", []byte(content)).im)
		err := p.refused(t, nil)
		corruptAt(t, err, "log.json", 0)
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		require.True(t, errors.As(err, &syntax) || errors.As(err, &kind), "%s: %v", content, err)
	}
}
