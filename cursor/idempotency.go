package cursor

import (
	"fmt"
	"strconv"
	"strings"
)

// IdempotencyKey names one record of one log for ever: "<log id>/<offset>". A
// consumer that calls another system sends it along; a receiver that does
// nothing for a key it has seen turns at-least-once delivery into effects that
// happen once. logID must not be empty: without it, two logs have the same keys.
func IdempotencyKey(logID string, offset uint64) string {
	return logID + "/" + strconv.FormatUint(offset, 10)
}

// ParseIdempotencyKey takes such a key apart. There is one way to write each.
func ParseIdempotencyKey(key string) (logID string, offset uint64, err error) {
	i := strings.LastIndexByte(key, '/')
	if i > 0 {
		offset, err = strconv.ParseUint(key[i+1:], 10, 64)
		if err == nil && key == IdempotencyKey(key[:i], offset) {
			return key[:i], offset, nil
		}
	}
	return "", 0, fmt.Errorf("%q is no idempotency key (log id/offset)", key)
}
