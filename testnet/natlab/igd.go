//go:build linux

package natlab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// igdProgram is the UPnP Internet Gateway Device of home routers, with the backend for nftables.
const igdProgram = "miniupnpd"

// igdStart bounds the start of the daemon.
const igdStart = time.Minute

// igd is the daemon of one router. Its configuration and pid file are in a separate directory.
type igd struct {
	cmd    *exec.Cmd
	dir    string
	exited chan struct{} // closed when the process is reaped
	said   []string      // its last output; read it only after exited is closed
}

// igdAvailable returns an error if no router can map ports on this machine.
func igdAvailable() error {
	out, err := exec.Command(igdProgram, "--version").CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w, and %s (Debian: miniupnpd-nftables) in routers with UPnP: %w",
			ErrUnavailable, igdProgram, err)
	case !strings.Contains(string(out), "nftables"):
		return fmt.Errorf("%w, and %s with its backend for nftables (Debian: miniupnpd-nftables) "+
			"in routers with UPnP; this one is: %.80s",
			ErrUnavailable, igdProgram, strings.TrimSpace(string(out)))
	}
	return nil
}

// igdRules are the router's chains for the daemon, in the only family that it writes to. Its own chain precedes the
// drop of unrequested packets.
const igdRules = `
table inet igd {
	chain maps { }
	chain mapsnat { }
	chain mapspost { }
	chain pre {
		type nat hook prerouting priority -100;
		jump mapsnat
	}
	chain post {
		type nat hook postrouting priority 100;
		jump mapspost
		oifname "wan" masquerade
	}
	chain input {
		type filter hook input priority 0;
		iifname "wan" drop
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		jump maps
		iifname "lan" accept
	}
}
`

// igdConfig is the daemon's configuration. Clients may map ports to themselves only, and none below 1024.
const igdConfig = `
ext_ifname=wan
listening_ip=lan
http_port=0
enable_upnp=yes
enable_natpmp=no
secure_mode=yes
system_uptime=no
upnp_table_name=igd
upnp_nat_table_name=igd
upnp_forward_chain=maps
upnp_nat_chain=mapsnat
upnp_nat_postrouting_chain=mapspost
notify_interval=60
clean_ruleset_interval=600
uuid=00000000-0000-4000-8000-000000000001
allow 1024-65535 NETWORK 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
`

// startIGD runs the daemon in a router's namespace and waits until it listens. It ends with this process.
func startIGD(router *Namespace, network string) (d *igd, err error) {
	dir, err := os.MkdirTemp("", "natlab-igd-")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", igdProgram, err)
	}
	d = &igd{dir: dir, exited: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting %s: %w", igdProgram, errors.Join(err, os.RemoveAll(dir)))
		}
	}()
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(igdConfig, "NETWORK", network)), 0o600); err != nil {
		return nil, err
	}
	// In the foreground it writes its log to stderr.
	d.cmd = exec.Command(igdProgram, "-d", "-f", config, "-P", filepath.Join(dir, "pid"))
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked; the thread must live as long as its child, the daemon
		err := router.Enter()
		if err == nil {
			err = d.cmd.Start()
		}
		started <- err
		if err == nil {
			<-d.exited
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(d.exited)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			d.said = append(d.said, lines.Text())
			d.said = d.said[max(0, len(d.said)-igdLines):]
			if ready != nil && strings.Contains(lines.Text(), igdListens) {
				close(ready)
				ready = nil
			}
		}
		_ = d.cmd.Wait() // it is killed
	}()
	select {
	case <-ready:
		return d, nil
	case <-d.exited:
		return nil, fmt.Errorf("the daemon ended: %s", strings.Join(d.said, "; "))
	case <-time.After(igdStart):
		err := d.Close()
		return nil, errors.Join(fmt.Errorf("not listening after %v: %s", igdStart, strings.Join(d.said, "; ")),
			err)
	}
}

// igdLines is the number of kept lines of its log.
const igdLines = 20

// igdListens is its output when it accepts clients.
const igdListens = "HTTP listening on port"

// Close ends the daemon.
func (d *igd) Close() error {
	err := d.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-d.exited
	return errors.Join(err, os.RemoveAll(d.dir))
}
