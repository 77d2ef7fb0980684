package vfs

import (
	"maps"
	"slices"
)

const sectorSize = 512

// Crash returns what a power failure at this moment may leave, one of many
// possibilities that seed chooses from. What was synced is always there. Of
// the rest, each file and each directory goes its own way:
//
//   - Each unsynced change of a directory (a name made, removed or moved) took
//     place or not; a rename that replaces a file leaves the old or the new one.
//     A directory whose own name was lost takes all that is in it along.
//   - Of the unsynced writes and truncates of a file, each sector of 512 bytes
//     got the first few (none, some or all) that touched it. So a sector is as it
//     was at one moment: whole, and with its old bytes where it was not written.
//   - The size is one of those that the file had since its last sync,
//     whichever sectors got their data: a file may end in zeros or be cut short.
//   - The modification time is the synced or the live one.
//
// Seed 0 loses all that is unsynced and seed 1 keeps it. The others come to the
// extremes too, for single files and directories (all lost, all kept, all up to
// one moment), which chance alone would hardly ever hit. What a failed sync
// covered (see FailSync) is always lost.
//
// In the returned Mem everything is synced, nothing is open or locked, no cut
// and no FailSync is set; clock, capacity and network are as here. Changes of
// either Mem do not show in the other.
func (m *Mem) Crash(seed uint64) *Mem {
	return m.image(&crash{seed: seed})
}

// SyncedImage is Crash(0): nothing survives that was not synced.
func (m *Mem) SyncedImage() *Mem { return m.Crash(0) }

// KillImage returns what is there after the process has been killed: all live
// state, with what is still unsynced left so, without open files, locks, cut
// and FailSync.
func (m *Mem) KillImage() *Mem {
	return m.image(nil)
}

// image copies m, after the power failure c if there is one.
func (m *Mem) image(c *crash) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	to := &Mem{lastID: m.lastID, now: m.now, network: m.network, capacity: m.capacity, cutAt: -1}
	im := imager{crash: c, copies: map[*node]*node{}}
	to.root = im.node(m.root)
	to.root.links = 1
	counted := map[*node]bool{}
	to.countLocked(to.root, counted)
	return to
}

// countLocked adds up what the nodes that have a name take.
func (m *Mem) countLocked(n *node, counted map[*node]bool) {
	if counted[n] {
		return // a failed directory sync can leave a file with two names
	}
	counted[n] = true
	m.used += nodeCost + n.charge()
	if n.isDir() {
		for _, entry := range n.dir.entries {
			m.countLocked(entry, counted)
		}
	}
}

// imager copies nodes, each of them once.
type imager struct {
	crash  *crash // nil when only the process died
	copies map[*node]*node
}

func (im imager) node(n *node) *node {
	if n == nil {
		return nil
	}
	if to, ok := im.copies[n]; ok {
		return to
	}
	to := &node{id: n.id, mode: n.mode}
	im.copies[n] = to
	switch {
	case n.isDir():
		to.dir = im.dir(n)
		to.mtime, to.syncedMtime, to.mtimeDirty = n.mtime, n.syncedMtime, n.mtimeDirty
	case im.crash != nil:
		im.crash.file(n, to)
	default:
		to.live, to.synced = n.live.clone(), n.synced.clone()
		to.pending = slices.Clone(n.pending)
		to.reserved = n.reserved
		to.mtime, to.syncedMtime, to.mtimeDirty = n.mtime, n.syncedMtime, n.mtimeDirty
	}
	return to
}

func (im imager) dir(n *node) *dirState {
	to := &dirState{parent: im.node(n.dir.parent)}
	if im.crash != nil {
		to.entries = im.entries(im.crash.dir(n))
		to.synced = maps.Clone(to.entries)
	} else {
		to.entries = im.entries(n.dir.entries)
		to.synced = im.entries(n.dir.synced)
		for _, op := range n.dir.pending {
			to.pending = append(to.pending, dirOp{from: op.from, to: op.to, node: im.node(op.node)})
		}
	}
	for _, entry := range to.entries {
		entry.links++
	}
	return to
}

func (im imager) entries(entries map[string]*node) map[string]*node {
	to := make(map[string]*node, len(entries))
	for name, n := range entries {
		to[name] = im.node(n)
	}
	return to
}

// crash decides what survives a power failure. Every choice is a hash of the
// seed and of what it is about, so the order in which they are made is free.
type crash struct {
	seed uint64
}

// What the choices of a choice are about.
const (
	aboutMode = iota
	aboutSizeMode
	aboutMtimeMode
	aboutEntry
	aboutSector
	aboutSize
	aboutMoment
	aboutMtime
)

func (c *crash) roll(n *node, about, i uint64) uint64 {
	x := c.seed
	for _, v := range [...]uint64{n.id, about, i} {
		// splitmix64
		x += 0x9e3779b97f4a7c15 + v
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// mode is how a node fares in a crash.
type mode uint64

const (
	loseAll  mode = iota
	keepAll       // of what is pending
	inOrder       // everything up to one moment, as a journal would
	keepMost      // in 7 of 8 choices
	loseMost
	coin // several times likelier than each of the others
)

func (c *crash) mode(n *node, about uint64) mode {
	switch c.seed {
	case 0:
		return loseAll
	case 1:
		return keepAll
	}
	return min(coin, mode(c.roll(n, about, 0)%10))
}

// pick chooses how many of count changes in a row survive, given how the node
// fares. The callers make of inOrder a shorter list; where there is none it is
// a coin.
func (c *crash) pick(n *node, how mode, about, i uint64, count int) int {
	x := c.roll(n, about, i)
	all, none := how == keepAll, how == loseAll
	switch how {
	case keepMost:
		all = x%8 != 0
	case loseMost:
		none = x%8 != 0
	}
	switch {
	case all:
		return count
	case none:
		return 0
	}
	return int((x >> 8) % uint64(count+1))
}

// moment is how many of count pending operations survive inOrder.
func (c *crash) moment(n *node, count int) int {
	return int(c.roll(n, aboutMoment, 0) % uint64(count+1))
}

// dir returns the entries that survive.
func (c *crash) dir(n *node) map[string]*node {
	entries := maps.Clone(n.dir.synced)
	pending, how := n.dir.pending, c.mode(n, aboutMode)
	if how == inOrder {
		pending, how = pending[:c.moment(n, len(pending))], keepAll
	}
	for i, op := range pending {
		if c.pick(n, how, aboutEntry, uint64(i), 1) == 0 {
			continue
		}
		if op.from != "" && op.to != "" && entries[op.from] != op.node {
			continue // what was moved was not there
		}
		op.apply(entries)
	}
	return entries
}

// file makes to what survives of n.
func (c *crash) file(n, to *node) {
	to.live = n.synced.clone()
	pending, how := n.pending, c.mode(n, aboutMode)
	howSize := c.mode(n, aboutSizeMode)
	if how == inOrder {
		pending, how, howSize = pending[:c.moment(n, len(pending))], keepAll, keepAll
	}
	size := c.size(n, howSize, pending)
	c.sectors(n, how, pending, &to.live)
	// What lies behind the size that survives is gone, what lies before it but
	// was not written is zeros.
	to.live.size = max(size, int64(len(to.live.pages))*pageSize)
	to.live.truncate(size)
	to.synced = to.live.clone()

	to.mtime = n.syncedMtime
	if n.mtimeDirty && c.pick(n, c.mode(n, aboutMtimeMode), aboutMtime, 0, 1) == 1 {
		to.mtime = n.mtime
	}
	to.syncedMtime = to.mtime
}

func (c *crash) size(n *node, how mode, pending []fileOp) int64 {
	size := n.synced.size
	sizes := []int64{size}
	for _, op := range pending {
		next := max(size, op.pos+int64(len(op.data)))
		if op.data == nil {
			next = op.pos
		}
		if next != size {
			size = next
			sizes = append(sizes, size)
		}
	}
	return sizes[c.pick(n, how, aboutSize, 0, len(sizes)-1)]
}

// sectors gives each sector the first few of the changes that touch it.
func (c *crash) sectors(n *node, how mode, pending []fileOp, to *content) {
	counts := map[int64]int{}
	eachTouch(n, pending, func(_ fileOp, sector, _, _ int64) { counts[sector]++ })
	keep := make(map[int64]int, len(counts))
	for sector, count := range counts {
		keep[sector] = c.pick(n, how, aboutSector, uint64(sector), count)
	}
	eachTouch(n, pending, func(op fileOp, sector, from, end int64) {
		if keep[sector] == 0 {
			return
		}
		keep[sector]--
		if op.data == nil {
			to.zero(from, end)
		} else {
			to.put(op.data[from-op.pos:end-op.pos], from)
		}
	})
}

// eachTouch calls fn for each part [from, end) that lies in one sector of what
// each operation changes. A truncate clears what lies behind it.
func eachTouch(n *node, pending []fileOp, fn func(op fileOp, sector, from, end int64)) {
	dataEnd := n.synced.size // highest byte that may not be zero
	for _, op := range pending {
		from, end := op.pos, op.pos+int64(len(op.data))
		if op.data == nil {
			end = dataEnd
		}
		for from < end {
			sector := from / sectorSize
			next := min(end, (sector+1)*sectorSize)
			fn(op, sector, from, next)
			from = next
		}
		dataEnd = max(dataEnd, end)
	}
}
