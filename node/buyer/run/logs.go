package run

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/starling-network/starling/node/buyer/ranklog"
)

// LogQuery selects a part of a rank's log.
type LogQuery = ranklog.Query

// The frames of a rank's log, see package ranklog.
const (
	FrameHeader  = ranklog.FrameHeader
	StreamStdout = ranklog.StreamStdout
)

// Logbook has the logs of a job's ranks.
type Logbook struct {
	dir  string      // of the job's files
	mu   *sync.Mutex // the job's
	logs []*ranklog.Log
}

// path returns the path of the log of a rank.
func (b *Logbook) path(rank int) string {
	return filepath.Join(b.dir, fmt.Sprintf("rank-%d.log", rank))
}

// Logs returns the logs of all ranks.
func (b *Logbook) Logs() []*ranklog.Log {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs
}

// EndLogs ends the logs of all ranks.
func (b *Logbook) EndLogs() {
	for _, l := range b.Logs() {
		l.End()
	}
}

// MakeRoom opens logs for n ranks.
func (b *Logbook) MakeRoom(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	logs := slices.Clone(b.logs)
	for i := len(logs); i < n; i++ {
		l, err := ranklog.Open(b.path(i))
		if err != nil {
			return err
		}
		logs = append(logs, l)
	}
	b.logs = logs
	return nil
}
