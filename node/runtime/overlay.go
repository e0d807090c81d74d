package runtime

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path"
	"regexp"
)

const (
	// OverlayDevice is the interface of an execution with an overlay; beside it there is a loopback and nothing else.
	OverlayDevice = "ovl0"
	// OverlayDir is the guest directory with the files that an overlay may bring, under names of their own.
	OverlayDir = "/etc/cluster"
	// AgentPath is a program in the sandbox of an execution with fellows that starts others in its fellows, as rsh
	// does: package agent.
	AgentPath = ControlDir + "/rsh"

	// MinMTU and MaxMTU bound Overlay.MTU, bytes.
	MinMTU = 1280
	MaxMTU = 9000
	// MaxOverlayFiles bounds the number of Overlay.Files, MaxOverlayBytes their total size.
	MaxOverlayFiles = 64
	MaxOverlayBytes = 1 << 20
)

// Overlay is an execution's private network, and its only one: all packets but those to itself go to the peer, which
// carries them (Networker.Tun) and filters them.
type Overlay struct {
	// Address is the execution's own, IPv4; PrefixBits is the length of the prefix in which its fellows are.
	Address    netip.Addr `json:"address"`
	PrefixBits int        `json:"prefix_bits"`
	// MTU is the largest packet that the execution sends, bytes.
	MTU int `json:"mtu"`
	// Hostname is the sandbox's name: 1 to 63 of [a-z0-9-].
	Hostname string `json:"hostname"`
	// Alone reports that the execution has no other members: neither OverlayDir nor AgentPath exists.
	Alone bool `json:"alone,omitempty"`
	// First reports that the execution's fellows wait for it. On a machine that has handed out more processors than it
	// has, it comes before others, up to its own limit.
	First bool `json:"first,omitempty"`
	// Files are its read-only files at these paths: /etc/hosts, /etc/resolv.conf, /etc/hostname, and names in
	// OverlayDir. Of the first three, a missing one is made of the rest: localhost and the own name, no resolver,
	// Hostname. An execution that is Alone and has a layer may change its copies.
	Files map[string][]byte `json:"files,omitempty"`
}

// Networker is the ability to run executions that have a Spec.Overlay. Each of the others is ErrEnded where the
// execution has ended and ErrNoOverlay where it has none.
type Networker interface {
	// CanOverlay returns ErrNoOverlay, with the reason, if no execution can be given an overlay now. The first call
	// takes as long as a start; its result is remembered.
	CanOverlay(ctx context.Context) error
	// Tun gives the TUN device that is the other end of OverlayDevice: a read is a packet of the execution's, a write
	// one for it, both without packet information and with a virtio header (IFF_NO_PI, IFF_VNET_HDR). It is
	// nonblocking, and the caller closes it. Each call gives another descriptor of the same device, also after Recover.
	// Offloads are the reader's to set.
	Tun(ctx context.Context, h Handle) (*os.File, error)
	// SetFiles replaces the content of the given files of Overlay.Files while the program runs.
	SetFiles(ctx context.Context, h Handle, files map[string][]byte) error
	// SetMTU changes Overlay.MTU while the program runs.
	SetMTU(ctx context.Context, h Handle, mtu int) error
}

// overlayEtc are the files of an overlay outside OverlayDir.
var overlayEtc = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname"}

var (
	hostnamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	overlayPattern  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

// Prefix is the network that the execution and its fellows are in.
func (o *Overlay) Prefix() netip.Prefix { return netip.PrefixFrom(o.Address, o.PrefixBits).Masked() }

// Check holds an overlay to its rules. Its errors are *SpecError.
func (o *Overlay) Check() error {
	if !o.Address.Is4() || o.Address.IsLoopback() || o.Address.IsMulticast() ||
		o.Address.IsUnspecified() || o.Address.IsLinkLocalUnicast() {
		return &SpecError{"Overlay.Address", fmt.Sprintf("%v is not an IPv4 address of a host", o.Address)}
	}
	if o.PrefixBits < 8 || o.PrefixBits > 30 {
		return &SpecError{"Overlay.PrefixBits", fmt.Sprintf("%d is not within 8 and 30", o.PrefixBits)}
	}
	if a := o.Address.As4(); o.Address == o.Prefix().Addr() || a == lastOf(o.Prefix()) {
		return &SpecError{"Overlay.Address", fmt.Sprintf("%v is the first or the last of %v and no host's",
			o.Address, o.Prefix())}
	}
	if err := CheckMTU(o.MTU); err != nil {
		return err
	}
	if len(o.Hostname) > 63 || !hostnamePattern.MatchString(o.Hostname) {
		return &SpecError{"Overlay.Hostname", fmt.Sprintf("%.80q is not 1 to 63 of [a-z0-9-]", o.Hostname)}
	}
	for name := range o.Files {
		if o.Alone && path.Dir(name) == OverlayDir {
			return &SpecError{"Overlay.Files", fmt.Sprintf("%.120q is of a cluster, and the execution is alone", name)}
		}
	}
	return CheckOverlayFiles(o.Files)
}

// CheckMTU returns an error for a size that Overlay.MTU may not have.
func CheckMTU(mtu int) error {
	if mtu < MinMTU || mtu > MaxMTU {
		return &SpecError{"Overlay.MTU", fmt.Sprintf("%d is not within %d and %d", mtu, MinMTU, MaxMTU)}
	}
	return nil
}

// lastOf is the address of all hosts of an IPv4 prefix.
func lastOf(p netip.Prefix) [4]byte {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return a
}

// CheckOverlayFiles checks future Overlay.Files, or a part of them. Its errors are *SpecError.
func CheckOverlayFiles(files map[string][]byte) error {
	if len(files) > MaxOverlayFiles {
		return &SpecError{"Overlay.Files", fmt.Sprintf("%d files, at most %d", len(files), MaxOverlayFiles)}
	}
	total := 0
	for name, content := range files {
		if !overlayFile(name) {
			return &SpecError{"Overlay.Files", fmt.Sprintf("got %.120q, want one of %v or a name in %s",
				name, overlayEtc, OverlayDir)}
		}
		total += len(content)
	}
	if total > MaxOverlayBytes {
		return &SpecError{"Overlay.Files", fmt.Sprintf("%d bytes, at most %d", total, MaxOverlayBytes)}
	}
	return nil
}

func overlayFile(name string) bool {
	for _, own := range overlayEtc {
		if name == own {
			return true
		}
	}
	dir, base := path.Split(name)
	return dir == OverlayDir+"/" && len(base) <= 64 && overlayPattern.MatchString(base)
}

// AllFiles are o.Files with those of /etc that are missing.
func (o *Overlay) AllFiles() map[string][]byte {
	all := map[string][]byte{
		"/etc/hosts":       fmt.Appendf(nil, "127.0.0.1 localhost\n%v %s\n", o.Address, o.Hostname),
		"/etc/resolv.conf": {},
		"/etc/hostname":    []byte(o.Hostname + "\n"),
	}
	for name, content := range o.Files {
		all[name] = content
	}
	return all
}
