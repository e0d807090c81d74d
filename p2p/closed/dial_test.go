package closed

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// Of all addresses that a name may have, only open ones are dialled, and none of this machine's.
func TestControl(t *testing.T) {
	t.Parallel()
	at := map[string]bool{
		"1.1.1.1:443": true, "[2606:4700::1111]:443": true, "127.0.0.1:443": false, "169.254.169.254:443": false,
		"10.1.2.3:443": false, "[::1]:443": false, "[fe80::1%eth0]:443": false, "[::ffff:127.0.0.1]:443": false,
		"[fd00:ec2::254]:443": false, "192.168.1.1:443": false, "0.0.0.0:443": false, "x": false,
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own {
		at[netip.AddrPortFrom(netip.MustParsePrefix(o.String()).Addr(), 443).String()] = false
	}
	for at, open := range at {
		if err := Control("tcp", at, nil); (err == nil) != open || !open && !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", at, err)
		}
	}
}
