package main

import "time"

// command is what the parent, which plays the users and the world, tells a peer:
// a line of JSON on its standard input. Now is the peer's wall clock.
type command struct {
	Do    string    `json:"do"`
	Now   time.Time `json:"now"`
	Edits []edit    `json:"edits,omitempty"` // of save
	Peer  string    `json:"peer,omitempty"`  // of pull
	URL   string    `json:"url,omitempty"`   // of pull
}

// What a peer can be told to do.
const (
	doSave    = "save"    // make the user's edits
	doDrain   = "drain"   // wait until the outbox is empty
	doOnline  = "online"  // start to answer the others
	doPull    = "pull"    // get what another one has
	doOffline = "offline" // stop answering
	doRetain  = "retain"  // drop old segments
)

// message is what a peer says: a line of JSON on its standard output. A command
// is answered by any number of messages and then one with Done.
type message struct {
	Done bool   `json:"done,omitempty"`
	What string `json:"what,omitempty"`
	From string `json:"from,omitempty"` // whose changes these are
	// Saves is how often the user has saved, and Seen how many changes of each
	// peer are in the database.
	Saves     int               `json:"saves,omitempty"`
	Seen      map[string]uint64 `json:"seen,omitempty"`
	URL       string            `json:"url,omitempty"`
	Records   int               `json:"records,omitempty"`
	Conflicts int               `json:"conflicts,omitempty"`
	Segments  int               `json:"segments,omitempty"`
	Text      string            `json:"text,omitempty"`
}

// What a message tells of.
const (
	sayUp      = "up"      // the peer runs; Saves, Seen
	saySaved   = "saved"   // Saves, Seen
	sayOnline  = "online"  // URL
	sayGot     = "got"     // Records of From, with Conflicts; Seen
	sayRefetch = "refetch" // everything of From, because its log begins too late; Text, Seen
	sayHeld    = "held"    // what comes next of From is not taken yet; Text
	sayGone    = "gone"    // From does not answer any more; Text
	sayDropped = "dropped" // Segments of its own log
)
