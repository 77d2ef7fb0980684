package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGateway(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir) // Unix
		t.Setenv("TMP", dir)    // Windows
		var out strings.Builder
		require.NoError(t, run(t.Context(), seed, &out))
		t.Log("\n" + out.String())
		for _, want := range []string{
			`(?m)^readings   29,962 of 2 sensors, 2013-07-04 to 2014-05-28$`,
			`(?m)^buffered   14,981 while the uplink was down and refused \d+ attempts; lag 14,981$`,
			`(?m)^uplink     refused [1-9]\d* requests, hung on [1-9]\d*, lost [1-9]\d* requests and [1-9]\d* answers$`,
			`(?m)^gateway    sent \d+ batches, [1-9]\d* times in vain; died [1-9]\d* times before a commit$`,
			`(?m)^repeats    [1-9][\d,]* readings arrived more than once and were ignored$`,
			`(?m)^received   all 29,962, each once and in order$`,
		} {
			require.Regexp(t, regexp.MustCompile(want), out.String())
		}
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), 12, "a dozen readable lines")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "the directory is removed")
	}
}

// The check at the end finds what it is there to find.
func TestCheckReceived(t *testing.T) {
	readings, err := events.Load("sensors_plant")
	require.NoError(t, err)
	l, err := evlog.Open(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	defer l.Close()
	id := l.Reader().ID()
	arrived := func(change func(all []reading) []reading) error {
		var all []reading
		for i, r := range readings[:5] {
			key := id + "/" + count(i)
			all = append(all, reading{ID: key, TimeMS: r.Time.UnixMilli(), Sensor: string(r.Key), Value: json.RawMessage(r.Value)})
		}
		s := &story{out: &strings.Builder{}, readings: readings[:5], log: l, uplink: &uplink{got: change(all)}}
		return s.checkReceived()
	}
	require.NoError(t, arrived(func(all []reading) []reading { return all }))
	require.ErrorContains(t, arrived(func(all []reading) []reading { return all[:4] }), "4 readings arrived, 5 were measured")
	require.ErrorContains(t, arrived(func(all []reading) []reading { return append(all, all[4]) }), "reading 4 arrived as number 5")
	require.ErrorContains(t, arrived(func(all []reading) []reading { all[1], all[2] = all[2], all[1]; return all }), "reading 2 arrived as number 1")
	require.ErrorContains(t, arrived(func(all []reading) []reading { all[3].TimeMS++; return all }), "not what was measured")
	require.ErrorContains(t, arrived(func(all []reading) []reading { all[0].ID = "other/0"; return all }), "arrived as number")
}
