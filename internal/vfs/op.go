package vfs

import (
	"fmt"
	"path"
	"strings"
)

// OpKind is a set of kinds of operations; an [Op] has one of them.
type OpKind uint32

// The kinds of operations. Those on the directory itself have no name.
const (
	OpOpen       OpKind = 1 << iota // OpenDir, and OpenFile without os.O_CREATE
	OpCreate                        // OpenFile with os.O_CREATE, whether or not the file was there
	OpRead                          // ReadAt
	OpWrite                         // WriteAt
	OpTruncate                      // Truncate; Off is the new size
	OpAllocate                      // Allocate
	OpSync                          // File.Sync
	OpSyncData                      // File.SyncData
	OpDirSync                       // Dir.Sync
	OpSyncParent                    // Dir.SyncParent
	OpRename                        // Rename from Name to To
	OpRemove                        // Remove
	OpList                          // Names
	OpStat                          // Stat of a name or an open file
	OpSame                          // Same
	OpChtimes                       // Chtimes
	OpLock                          // Lock, and LockDir without a name
	OpMkdir                         // MkdirAll
	OpClose                         // File.Close

	// OpAnySync is everything that makes something durable.
	OpAnySync = OpSync | OpSyncData | OpDirSync | OpSyncParent
	// OpAny is every kind.
	OpAny = OpClose<<1 - 1
)

var opNames = map[OpKind]string{
	OpOpen: "open", OpCreate: "create", OpRead: "read", OpWrite: "write",
	OpTruncate: "truncate", OpAllocate: "allocate", OpSync: "sync", OpSyncData: "syncdata",
	OpDirSync: "dirsync", OpSyncParent: "syncparent", OpRename: "rename", OpRemove: "remove",
	OpList: "list", OpStat: "stat", OpSame: "same", OpChtimes: "chtimes", OpLock: "lock",
	OpMkdir: "mkdir", OpClose: "close",
}

// String joins the names of the kinds in the set by "|".
func (k OpKind) String() string {
	var names []string
	for bit := OpKind(1); bit&OpAny != 0; bit <<= 1 {
		if k&bit != 0 {
			names = append(names, opNames[bit])
		}
	}
	return strings.Join(names, "|")
}

// Op is one operation on a file system.
type Op struct {
	Kind OpKind
	Seq  int64  // the operation's number, from 1
	Dir  string // path of the directory
	Name string // base name, or "" for an operation on the directory itself
	To   string // new name, of a rename
	Off  int64  // of read, write and allocate; the new size, of truncate
	Len  int64  // bytes, of read, write and allocate
}

// String is the operation without number and directory, such as
// "write a.log [0,100)", "syncdata a.log", "rename a.tmp -> a" or "dirsync".
func (o Op) String() string {
	s := o.Kind.String()
	if o.Name != "" {
		s += " " + o.Name
	}
	switch o.Kind {
	case OpRead, OpWrite, OpAllocate:
		s += fmt.Sprintf(" [%d,%d)", o.Off, o.Off+o.Len)
	case OpTruncate:
		s += fmt.Sprintf(" %d", o.Off)
	case OpRename:
		s += " -> " + o.To
	}
	return s
}

// matches reports whether an operation of kind on name is one that kinds and
// pattern ask for: pattern is path.Match's, or "" for every name.
func matches(kinds OpKind, pattern string, kind OpKind, name string) bool {
	if kinds&kind == 0 {
		return false
	}
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, name)
	if err != nil {
		panic("vfs: bad pattern " + pattern) // a mistake in a test
	}
	return ok
}
