package egress

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// book is a Resolver with what it was given.
type book struct {
	mu    sync.Mutex
	addrs map[string][]string
	asked []string
}

func (b *book) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, host)
	for _, a := range b.addrs[host] {
		out = append(out, netip.MustParseAddr(a))
	}
	if out == nil {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, err
}

func (b *book) LookupAddr(context.Context, string) ([]string, error) {
	return []string{"one.one.one.one.", "router.lan.", "printer."}, nil
}
func (b *book) LookupTXT(context.Context, string) ([]string, error) {
	return []string{strings.Repeat("x", 600), strings.Repeat("y", 4<<10)}, nil
}
func (b *book) LookupMX(context.Context, string) ([]*net.MX, error) {
	return []*net.MX{{Host: "mx.example.org.", Pref: 5}}, nil
}
func (b *book) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", []*net.SRV{{Target: "db.example.org.", Port: 27017, Priority: 1, Weight: 2}}, nil
}

// stuck answers when it is told to give up.
type stuck struct{ book }

func (*stuck) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text is an answer in short: its code, flags and records.
func text(t testing.TB, b []byte) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("an answer that cannot be read: %v", err)
	}
	if m.ID != 77 || !m.Response {
		t.Fatalf("no answer to the question: %+v", m.Header)
	}
	out := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	if m.Truncated {
		out = append(out, "truncated")
	}
	for _, a := range m.Answers {
		switch r := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(r.A).String())
		case *dnsmessage.PTRResource:
			out = append(out, r.PTR.String())
		case *dnsmessage.MXResource:
			out = append(out, r.MX.String())
		case *dnsmessage.SRVResource:
			out = append(out, fmt.Sprint(r.Target.String(), r.Port))
		case *dnsmessage.TXTResource:
			out = append(out, fmt.Sprint("txt", len(strings.Join(r.TXT, ""))))
		}
	}
	return strings.Join(out, " ")
}

// askUDP asks the service address until it answers.
func (c *container) askUDP(t testing.TB, message []byte) string {
	t.Helper()
	conn := c.sendUDP(t, netip.AddrPortFrom(service, portDNS), string(message))
	defer conn.Close()
	b := make([]byte, 1<<16)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return text(t, b[:n])
}

func (c *container) askTCP(t testing.TB, messages ...[]byte) (out []string) {
	t.Helper()
	conn := c.mustDial(t, netip.AddrPortFrom(service, portDNS))
	defer conn.Close()
	for _, m := range messages {
		conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	}
	for range messages {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		out = append(out, text(t, b))
	}
	return out
}

// threeRanks is a directory.
type threeRanks struct{}

func (threeRanks) Addresses(name string) []netip.Addr {
	if name == "head" {
		name = "node-0"
	}
	var rank int
	if n, err := fmt.Sscanf(strings.TrimSuffix(name, ".c1"), "node-%d", &rank); n == 1 && err == nil && rank < 3 {
		return []netip.Addr{netip.AddrFrom4([4]byte{10, 77, 0, byte(2 + rank)})}
	}
	return nil
}

func (threeRanks) Name(a netip.Addr) string {
	if b := a.As4(); b[3] >= 2 && b[3] < 5 && a.Is4() && b[0] == 10 {
		return fmt.Sprintf("node-%d", b[3]-2)
	}
	return ""
}

// clusterConfig knows three ranks.
func clusterConfig(p Policy, w *world, r Resolver) Config {
	cfg := config(p, w)
	cfg.Resolve, cfg.Domain, cfg.Names = r, "c1", threeRanks{}
	return cfg
}

func TestDNS(t *testing.T) {
	t.Parallel()
	r := &book{addrs: map[string][]string{
		"example.org.":   {"93.184.216.34", "192.168.1.1", "169.254.169.254"},
		"rebind.org.":    {"127.0.0.1", "10.0.0.1"},
		"four-in-six.a.": {"::ffff:10.0.0.1"},
		"many.org.":      {},
	}}
	for i := range 100 {
		r.addrs["many.org."] = append(r.addrs["many.org."], fmt.Sprintf("93.184.216.%d", i))
	}
	s, c := open(t, clusterConfig(internet, newWorld(), r))
	for _, q := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"node-0.", dnsmessage.TypeA, "Success 10.77.0.2"},
		{"Node-2.C1.", dnsmessage.TypeA, "Success 10.77.0.4"},
		{"HEAD.", dnsmessage.TypeA, "Success 10.77.0.2"},
		{"head.", dnsmessage.TypeAAAA, "Success"},
		{"node-7.", dnsmessage.TypeA, "NameError"},
		{"node-7.c1.", dnsmessage.TypeA, "NameError"},
		{"c1.", dnsmessage.TypeA, "NameError"},
		{"2.0.77.10.in-addr.arpa.", dnsmessage.TypePTR, "Success node-0."},
		{"9.0.77.10.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
		{"1.1.168.192.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
		{"77.10.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
		{"1.0.0.0.ip6.arpa.", dnsmessage.TypePTR, "NameError"},
		{"1.1.1.1.in-addr.arpa.", dnsmessage.TypePTR, "Success one.one.one.one."},
		{"example.org.", dnsmessage.TypeA, "Success 93.184.216.34"},
		{"EXAMPLE.org.", dnsmessage.TypeA, "Success 93.184.216.34"},
		{"example.org.", dnsmessage.TypeAAAA, "Success"},
		{"example.org.", dnsmessage.TypeMX, "Success mx.example.org."},
		{"_db._tcp.example.org.", dnsmessage.TypeSRV, "Success db.example.org.27017"},
		{"example.org.", dnsmessage.TypeTXT, "Success truncated"},
		{"example.org.", dnsmessage.Type(65), "Success"},
		{"rebind.org.", dnsmessage.TypeA, "NameError"},
		{"four-in-six.a.", dnsmessage.TypeA, "NameError"},
		{"nowhere.org.", dnsmessage.TypeA, "NameError"},
		{"router.lan.", dnsmessage.TypeA, "NameError"},
		{"nas.local.", dnsmessage.TypeA, "NameError"},
		{"metadata.google.internal.", dnsmessage.TypeA, "NameError"},
		{"localhost.", dnsmessage.TypeA, "NameError"},
		{"printer.", dnsmessage.TypeA, "NameError"},
		{".", dnsmessage.TypeNS, "NameError"},
		{"a b.org.", dnsmessage.TypeA, "NameError"},
	} {
		if got := c.askUDP(t, query(t, q.name, q.kind)); got != q.want {
			t.Errorf("%s %v: %q, want %q", q.name, q.kind, got, q.want)
		}
	}
	many := c.askUDP(t, query(t, "many.org.", dnsmessage.TypeA))
	if many != "Success truncated" {
		t.Errorf("many addresses in 512 bytes: %q", many)
	}
	got := c.askTCP(t, query(t, "many.org.", dnsmessage.TypeA), query(t, "node-1.", dnsmessage.TypeA), query(t, "example.org.", dnsmessage.TypeTXT))
	if n := len(strings.Fields(got[0])); n != 1+maxAddresses || got[1] != "Success 10.77.0.3" || got[2] != "Success txt600" {
		t.Errorf("by TCP: %d fields, %v", n, got[1:])
	}
	for _, name := range r.asked {
		if slices.ContainsFunc([]string{"lan.", "local.", "internal.", "localhost.", "c1."}, func(s string) bool { return strings.HasSuffix(name, s) }) {
			t.Errorf("the host's resolver was asked for %s", name)
		}
	}
	if n := s.Stats().Refused[ReasonAnswer]; n != 2 {
		t.Errorf("%d closed answers counted, want 2", n)
	}
}

// The policy says which names are looked up, and an allow list of names opens what they led to, on its ports only.
func TestAllowedNames(t *testing.T) {
	t.Parallel()
	r := &book{addrs: map[string][]string{
		"pypi.org.": {"151.101.0.223"}, "files.pythonhosted.org.": {"151.101.1.63", "10.0.0.1"}, "pythonhosted.org.": {"151.101.2.2"}, "evil.org.": {"93.184.216.34"},
	}}
	w := newWorld()
	server := echoTCP(t)
	for _, a := range []string{"151.101.0.223:443", "151.101.0.223:80", "151.101.1.63:443", "93.184.216.34:443"} {
		w.put(netip.MustParseAddrPort(a), server)
	}
	s, c := open(t, clusterConfig(rules(t, "PyPI.org:443", "*.pythonhosted.org:443"), w, r))
	c.refusedTCP(t, netip.MustParseAddrPort("151.101.0.223:443")) // nobody has asked for its name
	for name, want := range map[string]string{
		"pypi.org.": "Success 151.101.0.223", "files.pythonhosted.org.": "Success 151.101.1.63",
		"pythonhosted.org.": "Refused", "evil.org.": "Refused", "xpypi.org.": "Refused", "1.1.1.1.in-addr.arpa.": "Refused",
		"node-1.": "Success 10.77.0.3",
	} {
		kind := dnsmessage.TypeA
		if got := c.askUDP(t, query(t, name, kind)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c.mustDial(t, netip.MustParseAddrPort("151.101.0.223:443")).Close()
	c.mustDial(t, netip.MustParseAddrPort("151.101.1.63:443")).Close()
	c.refusedTCP(t, netip.MustParseAddrPort("151.101.0.223:80"))
	c.refusedTCP(t, netip.MustParseAddrPort("93.184.216.34:443"))
	c.refusedTCP(t, netip.MustParseAddrPort("10.0.0.1:443"))
	if got := s.Stats().Refused; got[ReasonName] != 4 || got[ReasonList] != 3 || got[ReasonClosed] != 1 {
		t.Errorf("counted %v", got)
	}
	if slices.Contains(r.asked, "evil.org.") {
		t.Error("the host's resolver was asked for a name that is not on the list")
	}

	none, n := open(t, clusterConfig(Policy{Mode: ModeNone}, w, r))
	if got := n.askUDP(t, query(t, "pypi.org.", dnsmessage.TypeA)); got != "Refused" {
		t.Errorf("mode none: %q", got)
	}
	if got := n.askUDP(t, query(t, "head.", dnsmessage.TypeA)); got != "Success 10.77.0.2" || none.Stats().Refused[ReasonName] != 1 {
		t.Errorf("mode none: %q, %v", got, none.Stats().Refused)
	}
}

func TestMemoryOfNames(t *testing.T) {
	t.Parallel()
	var m memory
	now := time.Unix(1_800_000_000, 0)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{93, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range maxRemember {
		if !m.remember([]netip.Addr{addr(i)}, []int{1}, now) {
			t.Fatalf("no room for address %d", i)
		}
	}
	if m.remember([]netip.Addr{addr(maxRemember)}, []int{1}, now) || len(m.rules(addr(maxRemember), now)) > 0 {
		t.Error("it remembers without end")
	}
	if got := m.rules(addr(5), now.Add(rememberFor-1)); !slices.Equal(got, []int{1}) {
		t.Errorf("rules %v, want [1]", got)
	}
	later := now.Add(rememberFor)
	if got := m.rules(addr(5), later); len(got) > 0 {
		t.Errorf("rules %v after their time", got)
	}
	if !m.remember([]netip.Addr{addr(maxRemember)}, []int{2}, later) || len(m.addrs) != 1 {
		t.Errorf("%d addresses remembered, want what is over forgotten", len(m.addrs))
	}
}

func TestDNSLimits(t *testing.T) {
	t.Parallel()
	cfg := clusterConfig(internet, newWorld(), &stuck{})
	cfg.Limits.Queries = 1 << 19
	s, c := open(t, cfg)
	for range maxLookups {
		c.sendUDP(t, netip.AddrPortFrom(service, portDNS), string(query(t, "example.org.", dnsmessage.TypeA)))
	}
	until(t, "as many look-ups run as may", func() bool { return len(s.dns.lookups) == maxLookups })
	if got := c.askUDP(t, query(t, "example.org.", dnsmessage.TypeA)); got != "ServerFailure" {
		t.Errorf("one look-up more: %q", got)
	}
	if got := c.askUDP(t, query(t, "node-1.", dnsmessage.TypeA)); got != "Success 10.77.0.3" {
		t.Errorf("a member's name beside slow look-ups: %q", got)
	}

	cfg = clusterConfig(internet, newWorld(), &book{})
	cfg.Limits.Queries = 1e-6
	slow, d := open(t, cfg)
	d.askUDP(t, query(t, "node-1.", dnsmessage.TypeA))
	if got := d.askUDP(t, query(t, "node-1.", dnsmessage.TypeA)); got != "Refused" || slow.Stats().Refused[ReasonQueries] != 1 {
		t.Errorf("over the rate: %q", got)
	}
}

func TestStrangeQueries(t *testing.T) {
	t.Parallel()
	s, c := open(t, clusterConfig(internet, newWorld(), &book{}))
	good := query(t, "head.", dnsmessage.TypeA)
	change := func(f func(m *dnsmessage.Message)) []byte {
		var m dnsmessage.Message
		if err := m.Unpack(good); err != nil {
			t.Fatal(err)
		}
		f(&m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, q := range map[string]struct {
		message []byte
		want    string
	}{
		"no question":   {change(func(m *dnsmessage.Message) { m.Questions = nil }), "FormatError"},
		"two questions": {change(func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), "FormatError"},
		"update":        {change(func(m *dnsmessage.Message) { m.OpCode = 5 }), "NotImplemented"},
		"chaos":         {change(func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), "NotImplemented"},
		"cut off":       {good[:len(good)-3], "FormatError"},
	} {
		if got := c.askUDP(t, q.message); got != q.want {
			t.Errorf("%s: %q, want %q", name, got, q.want)
		}
	}
	for _, m := range [][]byte{nil, {1, 2, 3}, change(func(m *dnsmessage.Message) { m.Response = true }), make([]byte, maxQuery+1)} {
		if s.dns.answer(m, false, func([]byte) { t.Errorf("%d bytes were answered", len(m)) }) {
			t.Errorf("%d bytes count as answered", len(m))
		}
	}
}

// FuzzDNS holds that whatever comes as a query is answered at most once, within the size that was asked for, by a message
// that can be read and has the query's id.
func FuzzDNS(f *testing.F) {
	f.Add(query(f, "head.", dnsmessage.TypeA), false)
	f.Add(query(f, "example.org.", dnsmessage.TypeTXT), true)
	f.Add(query(f, "2.0.77.10.in-addr.arpa.", dnsmessage.TypePTR), false)
	f.Add([]byte{0, 77, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0}, false)
	cfg := clusterConfig(internet, newWorld(), &book{addrs: map[string][]string{"example.org.": {"93.184.216.34"}}})
	cfg.Limits.Queries = 1 << 19
	s, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, message []byte, tcp bool) {
		replies := make(chan []byte, 2)
		if !s.dns.answer(message, tcp, func(b []byte) { replies <- b }) {
			return
		}
		reply := <-replies
		limit := maxUDP
		if tcp {
			limit = maxTCP
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || len(reply) > limit {
			t.Fatalf("a reply of %d bytes: %v", len(reply), err)
		}
		if !m.Response || m.ID != binary.BigEndian.Uint16(message) || len(replies) > 0 {
			t.Fatalf("the reply is not one to the query: %+v", m.Header)
		}
	})
}
