package evlog

import (
	"fmt"

	"github.com/evlog-go/evlog/internal/format"
)

// maxFilterChecked bounds the part of a filter that verify keeps in memory to
// compare it with the segment's keys: 16 MiB, the filter of 14 million keys. Of
// a larger one the blocks behind that are only tested by their checksums.
const maxFilterChecked = 16 << 20

// filterChecker compares the key filter of an index with the keys of its
// segment. A filter that denies a key makes look-ups miss records.
type filterChecker struct {
	shape  format.FilterShape
	blocks []format.FilterBlock
	err    error // nil; the first thing wrong
}

// newFilterChecker reads the filter. Without an index, or without a filter in
// it, there is nothing to check.
func newFilterChecker(x *index) *filterChecker {
	c := &filterChecker{}
	if x == nil || !x.header.Filter.There {
		return c
	}
	c.shape = x.header.Filter
	kept := int64(0)
	for i := range c.shape.Blocks {
		b, err := x.filterBlock(i, make([]byte, c.shape.BlockBytes))
		if err != nil {
			c.err = fmt.Errorf("%w: block %d of the key filter; look-ups read the segment instead", err, i)
			return c
		}
		if kept += int64(c.shape.BlockBytes); kept <= maxFilterChecked {
			c.blocks = append(c.blocks, b)
		}
	}
	return c
}

// record takes a record of the segment.
func (c *filterChecker) record(h format.Header, rec []byte) {
	if !c.shape.There || h.KeyLen == 0 || c.err != nil {
		return
	}
	if c.shape.Blocks == 0 {
		c.err = c.denied(h)
		return
	}
	hash := format.KeyHash(h.Key(rec))
	if i := int(c.shape.Block(hash)); i < len(c.blocks) && !c.blocks[i].MayHold(hash) {
		c.err = c.denied(h)
	}
}

func (c *filterChecker) denied(h format.Header) error {
	return fmt.Errorf("%w: the key filter denies the key of offset %d; evlog reindex mends it", format.ErrIndex, h.Offset)
}
