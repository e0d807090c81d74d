package closed

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	for text, open := range map[string]bool{
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.77.255.254": false, "100.64.0.1": false, "100.127.255.255": false,
		"100.128.0.1": true, "127.0.0.1": false, "127.255.255.254": false, "169.254.169.254": false, "172.15.255.255": true,
		"172.16.0.1": false, "172.31.255.255": false, "172.32.0.1": true, "192.0.0.8": false, "192.0.2.1": false, "192.168.1.1": false,
		"198.17.255.255": true, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false, "203.0.113.1": false,
		"224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "1.1.1.1": true, "93.184.216.34": true,
		"::": false, "::1": false, "::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:1.1.1.1": true, "::10.0.0.1": false,
		"64:ff9b::a00:1": false, "64:ff9b::101:101": false, "64:ff9b:1::a00:1": false, "2002:a00:1::1": false, "2002:c0a8:101::": false,
		"2001::1": false, "2001:db8::1": false, "3fff::1": false, "fc00::1": false, "fd00::1": false, "fe80::1": false, "fe80::1%eth0": false,
		"fec0::1": false, "ff02::1": false, "2606:4700::1111": true, "2001:4860:4860::8888": true, "100::1": false, "5f00::1": false,
	} {
		if why := Why(netip.MustParseAddr(text)); (why == "") != open {
			t.Errorf("%s: %q, open is %v", text, why, open)
		}
	}
	if Why(netip.Addr{}) == "" {
		t.Error("no address is open")
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	for text, whole := range map[string]bool{
		"10.0.0.0/8": true, "10.1.0.0/16": true, "10.1.2.3/32": true, "8.0.0.0/5": false, "0.0.0.0/0": false, "169.254.169.254/32": true,
		"1.1.1.0/24": false, "192.168.0.0/15": false, "fc00::/8": true, "::/0": false, "2606:4700::/32": false, "::1/128": true, "4000::/3": true,
	} {
		if got := Whole(netip.MustParsePrefix(text)); got != whole {
			t.Errorf("%s: whole is %v", text, got)
		}
	}
}

// An address of a range that is closed as a whole is closed, and a mapped one is what it carries.
func TestRangesAndAddressesAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")
		a := netip.AddrFrom4([4]byte(b))
		p := netip.PrefixFrom(a, rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
		if Whole(p) && Why(a) == "" {
			t.Fatalf("%v is closed as a whole, and %v of it is open", p, a)
		}
		if Whole(netip.PrefixFrom(a, 32)) != (Why(a) != "") {
			t.Fatalf("%v: as a range %v, as an address %q", a, Whole(netip.PrefixFrom(a, 32)), Why(a))
		}
		if mapped := netip.AddrFrom16(a.As16()); Why(mapped) != Why(a) {
			t.Fatalf("%v: %q, mapped %q", a, Why(a), Why(mapped))
		}
	})
}
