package jobcmd

import (
	"bytes"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/job/jobfile"
)

const wholeJobFile = `apiVersion: v1
kind: Job
metadata: {name: train}
spec:
  image: ghcr.io/acme/train:v1
  count: 3
  resources: {class: cpu, units: 2, cpu: 500m, memory: 256MiB, disk: 1GiB}
  secrets: [{name: token, from: 'env:TOKEN'}]
  inputs: [{src: data, dst: /in}]
  outputs: [{src: /out}, {src: /log}]
  shmSize: 128Mi
  restart: {policy: on-failure, max: 2}
  webhooks: [{url: "https://example.org/hook"}]
  timeouts: {queue: 2m, run: 1h}
  payment: {maxPrice: 0.05, budget: 0.1}
`

// The table of a job has a line for everything that the file sets, in columns that line up.
func TestJobTable(t *testing.T) {
	t.Parallel()
	j, err := jobfile.Parse([]byte(wholeJobFile), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	var table cli.Table
	jobTable(&table, j)
	var out bytes.Buffer
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `job       train
image     ghcr.io/acme/train:v1
secret    token → /run/secrets/token
ranks     3
each      2 × cpu, at least 500m CPU, 256 MiB memory, 1024 MiB disk
where     anywhere
input     data → /in
output    /out
output    /log
/dev/shm  128 MiB
restart   on-failure, at most 2 times
webhook   https://example.org/hook
time      2m0s in the queue, 1h0m0s running
price     at most 0.05 per unit-hour
budget    0.10
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
