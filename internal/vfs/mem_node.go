package vfs

import (
	"io/fs"
	"time"
)

// node is an inode of a Mem: a file, or a directory if dir is set. Live state
// is what everybody sees; synced state is what power failure cannot take, and
// the pending operations lead from there to live state, save for what a failed
// sync has lost. All of it is guarded by Mem.mu.
type node struct {
	id     uint64 // the same in every run that does the same, and in images
	mode   fs.FileMode
	links  int  // names in live state
	open   int  // Files, which keep a file that has no name any more
	locked bool // by a Lock
	dir    *dirState

	// Of a file.
	live     content
	synced   content
	pending  []fileOp // since the last sync of content, failed or not
	reserved int64    // end of what was allocated

	mtime       time.Time
	syncedMtime time.Time
	mtimeDirty  bool // mtime is waiting for a Sync
}

// dirState is what a node that is a directory has.
type dirState struct {
	parent  *node // nil at the root
	entries map[string]*node
	synced  map[string]*node
	pending []dirOp
}

// fileOp is a change of a file: a write of data at pos, or, without data, a
// truncate to pos. Neither is changed afterwards, so images share them.
type fileOp struct {
	pos  int64
	data []byte
}

// dirOp is a change of a directory, atomic as file systems have it: node loses
// the name from and gets the name to, each where it is not "".
type dirOp struct {
	from, to string
	node     *node
}

func (n *node) isDir() bool { return n.dir != nil }

// newNode returns a node that is charged for, without a name.
func (m *Mem) newNode(mode fs.FileMode) *node {
	m.lastID++
	m.used += nodeCost
	now := m.now()
	n := &node{id: m.lastID, mode: mode, mtime: now, syncedMtime: now, mtimeDirty: true}
	if mode.IsDir() {
		n.dir = &dirState{entries: map[string]*node{}, synced: map[string]*node{}}
	}
	return n
}

// charge is what a file's content takes of the capacity.
func (n *node) charge() int64 { return max(n.live.size, n.reserved) }

// freeLocked gives back the space of a node that nothing leads to any more.
func (m *Mem) freeLocked(n *node) {
	if n.links == 0 && n.open == 0 {
		m.used -= nodeCost + n.charge()
	}
}

// linkLocked does op in live state and notes it for the next sync of dir.
func (m *Mem) linkLocked(dir *node, op dirOp) {
	entries := dir.dir.entries
	var gone []*node
	if op.from != "" {
		op.node.links--
		gone = append(gone, op.node)
	}
	if op.to != "" {
		if old := entries[op.to]; old != nil { // a rename replaces it
			old.links--
			gone = append(gone, old)
		}
		op.node.links++
	}
	op.apply(entries)
	for _, n := range gone {
		m.freeLocked(n)
	}
	dir.dir.pending = append(dir.dir.pending, op)
	dir.mtime = m.now()
}

func (op dirOp) apply(entries map[string]*node) {
	if op.from != "" {
		delete(entries, op.from)
	}
	if op.to != "" {
		entries[op.to] = op.node
	}
}

// syncDirLocked makes dir's pending changes durable, or loses them. The path
// is for messages and, its last part, for FailSync.
func (m *Mem) syncDirLocked(dir *node, kind OpKind, path string) error {
	if err := m.beginLocked("sync", path); err != nil {
		return err
	}
	err := m.failLocked(kind, base(path))
	if err == nil {
		for _, op := range dir.dir.pending {
			op.apply(dir.dir.synced)
		}
	}
	dir.dir.pending = nil
	if err != nil {
		return pathErr("sync", path, err)
	}
	return nil
}

// syncFileLocked is the same for a file; SyncData leaves its time alone.
func (m *Mem) syncFileLocked(n *node, kind OpKind, path string) error {
	if err := m.beginLocked("sync", path); err != nil {
		return err
	}
	err := m.failLocked(kind, base(path))
	if err == nil {
		for _, op := range n.pending {
			n.synced.apply(op)
		}
	}
	n.pending = nil
	if kind == OpSync && n.mtimeDirty {
		n.mtimeDirty = false
		if err == nil {
			n.syncedMtime = n.mtime
		}
	}
	if err != nil {
		return pathErr("sync", path, err)
	}
	return nil
}

// changeLocked does op in live state and notes it for the next sync.
func (m *Mem) changeLocked(n *node, op fileOp) {
	m.used -= n.charge()
	n.live.apply(op)
	if op.data == nil {
		n.reserved = min(n.reserved, op.pos) // as ext4 and xfs do
	}
	m.used += n.charge()
	n.note(op)
	n.mtime, n.mtimeDirty = m.now(), true
}

// manyPending is where a node stops keeping all versions of bytes that are
// overwritten again and again without a sync. Crash then has fewer to choose
// from, and memory has a bound.
const manyPending = 256

func (n *node) note(op fileOp) {
	if last := len(n.pending) - 1; last >= manyPending && op.data != nil &&
		op.pos == n.pending[last].pos && len(op.data) == len(n.pending[last].data) {
		n.pending[last] = op
		return
	}
	n.pending = append(n.pending, op)
}

// memInfo is the fs.FileInfo of a node at one moment.
type memInfo struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: n.live.size, mode: n.mode, mtime: n.mtime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.mtime }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }
