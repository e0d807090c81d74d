package engine

import (
	"testing"

	"github.com/docker/docker/api/types/container"
)

func TestSandboxKilled(t *testing.T) {
	t.Parallel()
	inspected := func(runtime string, code int) container.InspectResponse {
		return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{
			State: &container.State{ExitCode: code}, HostConfig: &container.HostConfig{Runtime: runtime},
		}}
	}
	for name, c := range map[string]struct {
		c    container.InspectResponse
		want bool
	}{
		"gVisor's, killed": {inspected("runsc", 137), true},
		"gVisor's, ended":  {inspected("runsc", 1), false},
		"runc's, killed":   {inspected("runc", 137), false}, // its guard outlives its program, and reports it
		"ours, killed":     {inspected("starling", 137), false},
		"nothing is known": {container.InspectResponse{}, false},
	} {
		if got := SandboxKilled(c.c); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
