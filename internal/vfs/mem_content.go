package vfs

import "io"

const (
	pageSize = 4096
	// maxFileSize keeps the page table of a sparse file small.
	maxFileSize = 1 << 36
)

// content is a file's bytes, in pages so that holes cost nothing. A missing
// page reads as zeros, and so does every byte behind size in the last one.
type content struct {
	pages []*[pageSize]byte
	size  int64
}

func (c *content) readAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := len(p)
	p = p[:min(int64(want), c.size-off)]
	for n := 0; n < len(p); {
		page, at := (off+int64(n))/pageSize, (off+int64(n))%pageSize
		part := p[n:min(len(p), n+pageSize-int(at))]
		if page < int64(len(c.pages)) && c.pages[page] != nil {
			copy(part, c.pages[page][at:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return len(p), nil
}

func (c *content) writeAt(p []byte, off int64) {
	c.put(p, off)
	c.size = max(c.size, off+int64(len(p)))
}

// put writes without regard to size.
func (c *content) put(p []byte, off int64) {
	for len(p) > 0 {
		page, at := off/pageSize, off%pageSize
		for int64(len(c.pages)) <= page {
			c.pages = append(c.pages, nil)
		}
		if c.pages[page] == nil {
			c.pages[page] = new([pageSize]byte)
		}
		n := copy(c.pages[page][at:], p)
		p, off = p[n:], off+int64(n)
	}
}

func (c *content) truncate(size int64) {
	if size < c.size {
		c.zero(size, int64(len(c.pages))*pageSize)
		c.pages = c.pages[:min(int64(len(c.pages)), (size+pageSize-1)/pageSize)]
	}
	c.size = size
}

// zero clears [from, to), without regard to size.
func (c *content) zero(from, to int64) {
	to = min(to, int64(len(c.pages))*pageSize)
	for from < to {
		page, at := from/pageSize, from%pageSize
		end := min(to, (page+1)*pageSize)
		switch {
		case c.pages[page] == nil:
		case at == 0 && end == (page+1)*pageSize:
			c.pages[page] = nil
		default:
			clear(c.pages[page][at : end-page*pageSize])
		}
		from = end
	}
}

func (c *content) apply(op fileOp) {
	if op.data == nil {
		c.truncate(op.pos)
	} else {
		c.writeAt(op.data, op.pos)
	}
}

func (c *content) clone() content {
	d := content{pages: make([]*[pageSize]byte, len(c.pages)), size: c.size}
	for i, page := range c.pages {
		if page != nil {
			copied := *page
			d.pages[i] = &copied
		}
	}
	return d
}
