// Package sqlbridge is TODO.
package sqlbridge
