package checkpointcmd

import (
	"bytes"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// The table has each checkpoint with its age and the peers that keep it.
func TestCheckpointTable(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(n uint64, age time.Duration, guardians ...byte) record.Checkpoint {
		c := record.Checkpoint{Number: n, At: now.Add(-age), Blob: record.Blob{CID: "c", Size: 100, Tree: true}}
		for _, k := range guardians {
			c.Guardians = append(c.Guardians, sign.Key{k})
		}
		return c
	}
	j := record.Job{
		Ranks: []record.Rank{
			{State: record.RankRunning, Provider: sign.Key{1}, Checkpoints: []record.Checkpoint{at(4, time.Minute), at(3, time.Hour, 2, 4)}},
			{State: record.RankWaiting, Checkpoints: []record.Checkpoint{at(2, 2*time.Minute, 3)}},
			{State: record.RankDone},
		},
		Detached: &record.Detached{Guardians: []record.Guardian{{Key: sign.Key{2}}, {Key: sign.Key{3}}, {Key: sign.Key{4}}}},
	}
	all := checkpointsOf(j, cli.AllRanks)
	var table cli.Table
	checkpointTable(&table, all, now)
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	provider, guardian := sign.Key{1}.String()[:8], func(k byte) string {
		return "guardian " + sign.Key{k}.String()[:8]
	}
	want := `RANK  NUMBER  BYTES  AGE     KEPT BY
0     4       100    1m0s    this peer, its provider ` + provider + `
0     3       100    1h0m0s  this peer, its provider ` + provider + `, ` + guardian(2) + `, ` + guardian(4) + `
1     2       100    2m0s    this peer, ` + guardian(3) + `
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if one := checkpointsOf(j, 1); len(one) != 1 || one[0].Rank != 1 || one[0].Provider != "" {
		t.Errorf("of rank 1: %+v", one)
	}
	if got := noCheckpoints(record.Job{ID: "j"}); got == nil {
		t.Error("no reason")
	}
	j.Spec.Checkpoint, j.State = &job.Checkpoint{}, record.Succeeded
	if got, ok := noCheckpoints(j).(*cli.Error); !ok || got.Hint == "" {
		t.Errorf("no hint: %v", got)
	}
}
