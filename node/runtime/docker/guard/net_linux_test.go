package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

// makeNet is an order of a network.
var makeNet = NetRequest{Op: NetMake, Address: netip.MustParseAddr("10.77.0.2"), Bits: 16, MTU: 1400, Grace: time.Hour, Token: "its own"}

// askNet sends a request to a guard that holds a network, and returns its answer with the files of it.
func (b *box) askNet(req NetRequest) (Answer, []*os.File) {
	b.t.Helper()
	must(b.t, b.conn.Send(req))
	text, files, err := b.conn.Receive()
	must(b.t, err)
	b.t.Cleanup(func() { CloseFiles(files) })
	a, err := DecodeAnswer(text)
	if must(b.t, err); a.ID != req.ID {
		b.t.Errorf("answer to request %d, want %d", a.ID, req.ID)
	}
	return a, files
}

// sum is the checksum of IPv4 and ICMP.
func sum(b []byte) (n uint16) {
	var all uint32
	for i := 0; i+1 < len(b); i += 2 {
		all += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for all > 0xffff {
		all = all>>16 + all&0xffff
	}
	return ^uint16(all)
}

// ping is an echo request of 10.78.0.1, beyond the prefix, to an address, behind the header of a TUN device.
func ping(to netip.Addr) []byte {
	const header = 10 // struct virtio_net_hdr
	b := make([]byte, header+28)
	ip, icmp, a := b[header:], b[header+20:], to.As4()
	copy(ip, []byte{0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0, 0, 10, 78, 0, 1})
	copy(ip[16:], a[:])
	binary.BigEndian.PutUint16(ip[10:], sum(ip[:20]))
	icmp[0], icmp[5] = 8, 7
	binary.BigEndian.PutUint16(icmp[2:], sum(icmp))
	return b
}

// echoed waits for the answer to a ping.
func echoed(t *testing.T, tun *os.File) {
	t.Helper()
	_, err := tun.Write(ping(makeNet.Address))
	must(t, err)
	b := make([]byte, 1<<16)
	for {
		n, err := tun.Read(b)
		must(t, err)
		if n >= 38 && b[10]>>4 == 4 && b[19] == 1 && b[30] == 0 && bytes.Equal(b[22:30], []byte{10, 77, 0, 2, 10, 78, 0, 1}) {
			return
		}
	}
}

// A network has its address, MTU and a route to everywhere, outlives a peer, and ends at a request.
func TestNet(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(tunPath); err != nil {
		t.Skip(err)
	}
	b := newBox(t, layout{Net: true})
	if a, _ := b.askNet(makeNet); a.Error != "" {
		t.Fatal(a.Error)
	}
	if a, files := b.askNet(NetRequest{Op: NetAdopt}); a.Error != "" || len(files) > 0 {
		t.Errorf("answer %+v with %d files", a, len(files))
	}
	again := makeNet
	again.ID = 4
	if a, _ := b.askNet(again); a.Error != "the device is made already" {
		t.Errorf("answer %+v to the same order again", a)
	}
	a, files := b.askNet(NetRequest{Op: NetTun, ID: 5})
	if a.Error != "" || len(files) != 1 {
		t.Fatalf("answer %+v with %d files", a, len(files))
	}
	echoed(t, files[0])
	if got := b.mtu(); got != 1400 {
		t.Errorf("MTU %d, want 1400", got)
	}
	if a, _ := b.askNet(NetRequest{Op: NetMTU, ID: 6, MTU: 1300}); a.Error != "" || b.mtu() != 1300 {
		t.Errorf("answer %+v, MTU %d, want 1300", a, b.mtu())
	}
	must(t, b.cmd.Process.Signal(unix.SIGTERM)) // of a stopping engine: programs may still need it
	_ = b.conn.Close()
	CloseFiles(files)
	b.accept()
	if first := b.receive(); first.Token != "its own" {
		t.Fatalf("first message %+v, want the token", first)
	}
	_, files = b.askNet(NetRequest{Op: NetTun, ID: 1})
	echoed(t, files[0])
	must(t, b.conn.Send(Request{Op: OpKill})) // no request of a network: the connection ends, and the network does not
	if _, _, err := b.conn.Receive(); err == nil {
		t.Error("it answers another guard's request")
	}
	b.accept()
	b.receive()
	must(t, b.conn.Send(NetRequest{Op: NetEnd}))
	<-b.exited
	if code := b.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// mtu reads the device's MTU in the box.
func (b *box) mtu() int {
	b.t.Helper()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	var fds [2]int
	for i, path := range []string{"/proc/thread-self/ns/net", fmt.Sprintf("/proc/%d/ns/net", b.cmd.Process.Pid)} {
		var err error
		fds[i], err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(b.t, err)
		defer unix.Close(fds[i])
	}
	must(b.t, unix.Setns(fds[1], unix.CLONE_NEWNET))
	var mtu uint32
	err := withSocket(func(s int) error {
		ifr, err := unix.NewIfreq(runtime.OverlayDevice)
		if err == nil {
			err = unix.IoctlIfreq(s, unix.SIOCGIFMTU, ifr)
			mtu = ifr.Uint32()
		}
		return err
	})
	must(b.t, errors.Join(err, unix.Setns(fds[0], unix.CLONE_NEWNET)))
	return int(mtu)
}

// Without a peer for the grace the network ends.
func TestNetWithoutPeer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(tunPath); err != nil {
		t.Skip(err)
	}
	b := newBox(t, layout{Net: true})
	brief := makeNet
	brief.Grace = 10 * time.Millisecond
	if a, _ := b.askNet(brief); a.Error != "" {
		t.Fatal(a.Error)
	}
	_ = b.listener.Close()
	_ = b.conn.Close()
	<-b.exited
	if text := b.output("guard.log"); b.cmd.ProcessState.ExitCode() != runtime.CodeLost || !strings.Contains(text, "no peer came back") {
		t.Errorf("exit code %d, %s", b.cmd.ProcessState.ExitCode(), text)
	}
}

// A guard for a network takes no other order, and without the rights of its container makes no device.
func TestNetRefused(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(tunPath); err != nil {
		t.Skip(err)
	}
	bad := makeNet
	bad.MTU = 1
	for name, test := range map[string]struct {
		uid     int
		message any
		want    string
	}{
		"another request": {0, NetRequest{Op: NetAdopt}, `operation "adopt"`},
		"a bad order":     {0, bad, "MTU"},
		"of a program":    {0, Request{Op: OpRun, Port: 1}, "decoding network request"},
		"no rights":       {1000, makeNet, "/dev/net/tun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, layout{Net: true, UID: test.uid})
			must(t, b.conn.Send(test.message))
			if a := b.receive(); !strings.Contains(a.Error, test.want) {
				t.Errorf("answer %+v, want %q", a, test.want)
			}
			<-b.exited
			if code := b.cmd.ProcessState.ExitCode(); code != runtime.CodeLost {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// The gateway of every prefix is another host in it.
func TestGateway(t *testing.T) {
	t.Parallel()
	for bits := 8; bits <= 30; bits++ {
		prefix := netip.PrefixFrom(netip.MustParseAddr("10.129.255.254"), bits).Masked()
		for _, own := range []netip.Addr{prefix.Addr().Next(), prefix.Addr().Next().Next()} {
			via := gateway(own, bits)
			if via == own || !prefix.Contains(via) || via == prefix.Addr() || !prefix.Contains(via.Next()) {
				t.Errorf("%v in %v has the gateway %v", own, prefix, via)
			}
		}
	}
}
