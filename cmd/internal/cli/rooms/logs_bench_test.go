package rooms

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/clitest/programtest"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// chatLines is how many lines of chatLine the chat program writes, each with a call of its own as programs do.
const (
	chatLines = 100_000
	chatLine  = "step %7d loss 0.123456 lr 0.0003 tokens/s 123456 a line as programs that train write them\n"
)

func init() {
	programtest.All["chat"] = func(p guest.Process) int {
		out := p.Stdout()
		for i := range chatLines {
			fmt.Fprintf(out, chatLine, i)
		}
		return 0
	}
}

// countLines counts what is written to it.
type countLines struct {
	lines int
	bytes int64
}

func (c *countLines) Write(p []byte) (int, error) {
	c.lines += bytes.Count(p, []byte{'\n'})
	c.bytes += int64(len(p))
	return len(p), nil
}

// BenchmarkLogs follows a job's log from the program's writes at a provider over the network, this peer's file and its API to
// the command line. copy/s is how often faster the same bytes are copied from one file to another, in the same run.
func BenchmarkLogs(b *testing.B) {
	w := newWorld(b)
	var lines int
	var plain time.Duration
	for b.Loop() {
		id := strings.TrimSpace(w.CLI(b, "run", "-d", "--max-price", "1", "--budget", "1", filepath.Join(w.Files, "chat.wasm")).Want(b, cli.ExitOK).Out)
		out := &countLines{}
		var errs clitest.Buffer
		if code := w.App(out, &errs).Run(b.Context(), []string{"logs", "-f", "--rank", "0", id}); code != 0 || out.lines != chatLines {
			b.Fatalf("exit code %d, %d of %d lines: %s", code, out.lines, chatLines, errs.String())
		}
		lines += out.lines
		b.StopTimer()
		plain += copyTime(b, out.bytes)
		b.StartTimer()
	}
	b.ReportMetric(float64(lines)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(b.Elapsed().Seconds()/plain.Seconds(), "copies")
}

// copyTime is how long a file of n bytes takes to be copied.
func copyTime(b *testing.B, n int64) time.Duration {
	from, to := filepath.Join(b.TempDir(), "from"), filepath.Join(b.TempDir(), "to")
	if err := os.WriteFile(from, make([]byte, n), 0o600); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	r, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}
