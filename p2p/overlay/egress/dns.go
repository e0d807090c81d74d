package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/starling-network/starling/p2p/closed"
)

// Bounds of DNS.
const (
	portDNS     = 53
	maxQuery    = 1232 // bytes of a query, by UDP or TCP
	maxUDP      = 1232 // bytes of an answer by UDP to a client that accepts this size; else plainUDP
	plainUDP    = 512
	maxTCP      = 1<<16 - 1
	maxLookups  = 64 // at a time
	lookupTime  = 8 * time.Second
	dnsIdle     = 10 * time.Second
	ttlCluster  = 5 // seconds: ranks are replaced
	ttlOutside  = 60
	maxRecords  = 32
	maxTextSize = 4 << 10 // of all TXT records of an answer
)

// nameServer answers the container's questions at the service address.
type nameServer struct {
	s       *Stack
	queries *rate.Limiter
	lookups chan struct{} // one for each that runs
	opened  memory        // addresses that names led to
}

func newNameServer(s *Stack) *nameServer {
	return &nameServer{s: s, queries: limiter(s.cfg.Limits.Queries), lookups: make(chan struct{}, maxLookups)}
}

// serve answers datagrams. Names of the cluster are answered by this goroutine, others by one each, maxLookups at a
// time.
func (d *nameServer) serve(conn *gonet.UDPConn) {
	unhook := context.AfterFunc(d.s.ctx, func() { conn.Close() })
	defer unhook()
	defer conn.Close()
	b := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		d.answer(append([]byte(nil), b[:n]...), false, func(reply []byte) { _, _ = conn.WriteTo(reply, from) })
	}
}

// serveConn answers a connection: each message after its length, one after the other.
func (d *nameServer) serveConn(_ context.Context, conn net.Conn) {
	for {
		if conn.SetReadDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxQuery {
			d.s.refused.add(ReasonMalformed, netip.AddrPort{}, "")
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		replies := make(chan []byte, 1)
		if !d.answer(query, true, func(reply []byte) { replies <- reply }) {
			return
		}
		reply := <-replies
		if conn.SetWriteDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answer answers one message. It reports whether the message gets an answer; if so, reply is called once, possibly
// later by another goroutine.
func (d *nameServer) answer(message []byte, tcp bool, reply func([]byte)) bool {
	a, code, ok := parseQuery(message, tcp)
	if !ok {
		d.s.refused.add(ReasonMalformed, netip.AddrPort{}, "")
		return false
	}
	if code == dnsmessage.RCodeSuccess && !d.queries.Allow() {
		d.s.refused.add(ReasonQueries, netip.AddrPort{}, a.name)
		code = dnsmessage.RCodeRefused
	}
	if code != dnsmessage.RCodeSuccess {
		reply(a.pack(found{code: code}))
		return true
	}
	if f, known := d.cluster(a); known {
		reply(a.pack(f))
		return true
	}
	if !d.s.cfg.Policy.resolves(a.name) {
		d.s.refused.add(ReasonName, netip.AddrPort{}, a.name)
		reply(a.pack(found{code: dnsmessage.RCodeRefused}))
		return true
	}
	select {
	case d.lookups <- struct{}{}:
	default:
		d.s.refused.add(ReasonQueries, netip.AddrPort{}, a.name)
		reply(a.pack(found{code: dnsmessage.RCodeServerFailure}))
		return true
	}
	if !d.s.enter() {
		<-d.lookups
		return false
	}
	go func() {
		defer d.s.leave()
		defer func() { <-d.lookups }()
		ctx, done := context.WithTimeout(d.s.ctx, lookupTime)
		defer done()
		reply(a.pack(d.look(ctx, a)))
	}()
	return true
}

// cluster answers for names of the cluster, and for names that cannot exist on the internet. These are not looked up
// elsewhere.
func (d *nameServer) cluster(a asked) (f found, known bool) {
	missing := found{code: dnsmessage.RCodeNameError, ours: true}
	if addr, reverse := reverseAddr(a.name); reverse {
		if !addr.IsValid() {
			return missing, true
		}
		if name := d.s.cfg.Names.Name(addr); name != "" {
			f = found{ours: true}
			if to, err := dnsmessage.NewName(name + "."); err == nil && a.q.Type == dnsmessage.TypePTR {
				f.records = append(f.records, a.record(ttlCluster, &dnsmessage.PTRResource{PTR: to}))
			}
			return f, true
		}
		return missing, closed.Why(addr) != "" || d.s.hosts.have(addr)
	}
	if addrs := d.s.cfg.Names.Addresses(a.name); len(addrs) > 0 {
		f = found{ours: true}
		if a.q.Type == dnsmessage.TypeA || a.q.Type == dnsmessage.TypeALL {
			for _, addr := range addrs[:min(len(addrs), maxRecords)] {
				if addr.Is4() {
					f.records = append(f.records, a.record(ttlCluster, &dnsmessage.AResource{A: addr.As4()}))
				}
			}
		}
		return f, true
	}
	if a.name == d.s.cfg.Domain || d.s.cfg.Domain != "" && strings.HasSuffix(a.name, "."+d.s.cfg.Domain) {
		return missing, true
	}
	return missing, local(a.name) || checkName(a.name) != nil
}

// look queries the host's resolver. For unneeded types, and for AAAA, every name is empty: the overlay is IPv4 only.
func (d *nameServer) look(ctx context.Context, a asked) found {
	name, out := a.name+".", found{}
	add := func(body dnsmessage.ResourceBody) {
		if len(out.records) < maxRecords {
			out.records = append(out.records, a.record(ttlOutside, body))
		}
	}
	var err error
	switch a.q.Type {
	case dnsmessage.TypeA:
		return d.lookA(ctx, a)
	case dnsmessage.TypePTR:
		var names []string
		if addr, reverse := reverseAddr(a.name); reverse {
			names, err = d.s.cfg.Resolve.LookupAddr(ctx, addr.String())
		}
		for _, n := range names {
			if to, err := dnsmessage.NewName(strings.TrimSuffix(n, ".") + "."); err == nil &&
				!local(strings.TrimSuffix(n, ".")) {
				add(&dnsmessage.PTRResource{PTR: to})
			}
		}
	case dnsmessage.TypeTXT:
		var texts []string
		texts, err = d.s.cfg.Resolve.LookupTXT(ctx, name)
		size := 0
		for _, t := range texts {
			if size += len(t); size <= maxTextSize {
				add(&dnsmessage.TXTResource{TXT: split(t)})
			}
		}
	case dnsmessage.TypeMX:
		var mx []*net.MX
		mx, err = d.s.cfg.Resolve.LookupMX(ctx, name)
		for _, m := range mx {
			if to, err := dnsmessage.NewName(m.Host); err == nil {
				add(&dnsmessage.MXResource{Pref: m.Pref, MX: to})
			}
		}
	case dnsmessage.TypeSRV:
		var srv []*net.SRV
		_, srv, err = d.s.cfg.Resolve.LookupSRV(ctx, "", "", name)
		for _, v := range srv {
			if to, err := dnsmessage.NewName(v.Target); err == nil {
				add(&dnsmessage.SRVResource{Priority: v.Priority, Weight: v.Weight, Port: v.Port, Target: to})
			}
		}
	}
	if err != nil {
		return found{code: codeOf(err)}
	}
	return out
}

// lookA looks up a name's addresses and drops closed ones. The rules for the name open the rest from now on.
func (d *nameServer) lookA(ctx context.Context, a asked) found {
	addrs, err := d.s.cfg.Resolve.LookupNetIP(ctx, "ip4", a.name+".")
	if err != nil {
		return found{code: codeOf(err)}
	}
	var open []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() && closed.Why(addr) == "" && !d.s.hosts.have(addr) &&
			len(open) < maxAddresses {
			open = append(open, addr)
		}
	}
	if len(open) == 0 {
		// As if it did not exist: names in the provider's own network are not for the container.
		if len(addrs) > 0 {
			d.s.refused.add(ReasonAnswer, netip.AddrPort{}, a.name)
		}
		return found{code: dnsmessage.RCodeNameError}
	}
	if d.s.cfg.Policy.Mode == ModeAllowlist && !d.opened.remember(open, d.s.cfg.Policy.naming(a.name), time.Now()) {
		return found{code: dnsmessage.RCodeServerFailure}
	}
	var f found
	for _, addr := range open {
		f.records = append(f.records, a.record(ttlOutside, &dnsmessage.AResource{A: addr.As4()}))
	}
	return f
}

func codeOf(err error) dnsmessage.RCode {
	var e *net.DNSError
	if errors.As(err, &e) && e.IsNotFound {
		return dnsmessage.RCodeNameError
	}
	return dnsmessage.RCodeServerFailure
}
