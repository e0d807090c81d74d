package jobcmd

import (
	"testing"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// What a provider calls its output decides nothing about where it is written.
func TestOutputDir(t *testing.T) {
	t.Parallel()
	j := record.Job{Spec: job.Job{Outputs: []job.Output{{Path: "/out"}, {Path: "/data/out"}}}}
	for path, want := range map[string]string{"/out": "dir/out", "/data/out": "dir/data/out", "/etc": "", "../out": "", "/out/../../x": "", "": ""} {
		got, err := outputDir(j, "dir", path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q goes to %q, %v, want %q", path, got, err, want)
		}
	}
}
