//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/testnet/engine"
)

// bare is what a person would do by hand: one network of the container engine, a container for each node, `ray start` in it.
// Their addresses, their command lines and their environment are those that Starling's members have, and so are their limits.
type bare struct {
	engine *engine.Engine
	image  string
	token  string
	secret string // file with the token
}

const bareNetwork = "bare"

func newBare(ctx context.Context, e *engine.Engine, image, dir string) (*bare, error) {
	b := &bare{engine: e, image: image, token: fmt.Sprintf("%064x", 8), secret: filepath.Join(dir, "token")}
	if err := os.WriteFile(b.secret, []byte(b.token), 0o600); err != nil {
		return nil, err
	}
	type m = map[string]any
	return b, e.Call(ctx, http.MethodPost, "/networks/create", m{"Name": bareNetwork, "Driver": "bridge", "Internal": true,
		"IPAM": m{"Config": []m{{"Subnet": cluster.Prefix.String()}}}}, nil)
}

// start brings up a cluster of so many nodes and says how long after its first container's start Ray saw each of them.
func (b *bare) start(ctx context.Context, task cluster.Task) (seen []time.Duration, err error) {
	eng, err := cluster.LookUp("ray")
	if err != nil {
		return nil, err
	}
	ids := make([]string, task.Size)
	defer func() {
		for _, id := range ids {
			if id != "" {
				err = errors.Join(err, b.engine.Call(context.WithoutCancel(ctx), http.MethodDelete, "/containers/"+id+"?force=1&v=1", nil, nil))
			}
		}
	}()
	contract := cluster.Contract{Cluster: task.ID, Size: task.Size, Version: 1, MTU: cluster.MaxMTU, Engine: eng.Name}
	for i := range ids {
		contract.Nodes = append(contract.Nodes, cluster.Node{Rank: uint32(i), Name: cluster.Name(uint32(i))})
	}
	var g errgroup.Group
	for i := range ids {
		t, c := task, contract
		t.Rank, c.Rank = uint32(i), uint32(i)
		g.Go(func() error {
			var made struct{ ID string }
			err := b.engine.Call(ctx, http.MethodPost, "/containers/create?name=bare-"+strconv.Itoa(i), b.container(eng.With(t.Options).Program(t), t, c), &made)
			ids[i] = made.ID
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	began := time.Now()
	for _, id := range ids {
		g.Go(func() error { return b.engine.Call(ctx, http.MethodPost, "/containers/"+id+"/start", nil, nil) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	head := net.JoinHostPort(cluster.Address(0).String(), strconv.Itoa(cluster.PortRay))
	gcs := newStore(b.token, func(ctx context.Context) (net.Conn, error) { return b.engine.Net.Dial(ctx, "tcp", head) })
	defer gcs.close()
	return watch(ctx, began, len(ids), gcs.nodes)
}

// openFiles is the limit of a sandbox (node/runtime/docker/guard): some programs close every number up to it.
func openFiles() []map[string]any {
	const most = 1 << 16
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil || now.Max <= most {
		return nil
	}
	return []map[string]any{{"Name": "nofile", "Soft": most, "Hard": most}}
}

// container is one node's: what Starling's sandbox is made of, on the engine's own network instead of an overlay.
func (b *bare) container(p cluster.Program, t cluster.Task, c cluster.Contract) map[string]any {
	type m = map[string]any
	var env []string
	for k, v := range c.WithEnv(p.Env) {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	mib := int64(t.MemoryMiB) << 20
	tmpfs := fmt.Sprintf("rw,nosuid,nodev,mode=1777,size=%dm", t.MemoryMiB)
	return m{
		"Image": b.image, "Entrypoint": p.Entrypoint, "Cmd": p.Args, "Env": env, "User": "0:0", "Hostname": c.Hostname(),
		"HostConfig": m{
			"NetworkMode": bareNetwork, "LogConfig": m{"Type": "none"}, "CapDrop": []string{"ALL"}, "SecurityOpt": []string{"no-new-privileges"}, "ReadonlyRootfs": true,
			"Memory": mib, "MemorySwap": mib, "CpuPeriod": 100_000, "CpuQuota": 100 * int64(t.MilliCPU), "ShmSize": mib / 2, "PidsLimit": 4096, "Ulimits": openFiles(),
			"Tmpfs":  m{"/run": tmpfs, "/tmp": tmpfs + ",exec"},
			"Mounts": []m{{"Type": "bind", "Source": b.secret, "Target": "/run/secrets/" + cluster.TokenFile, "ReadOnly": true}},
		},
		"NetworkingConfig": m{"EndpointsConfig": m{bareNetwork: m{"IPAMConfig": m{"IPv4Address": c.Address().String()}}}},
	}
}
