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

// serveDNS answers datagrams. Names of the cluster are answered by this goroutine, others by one each, maxLookups at a
// time.
func (s *Stack) serveDNS(conn *gonet.UDPConn) {
	unhook := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer unhook()
	defer conn.Close()
	b := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		s.answer(append([]byte(nil), b[:n]...), false, func(reply []byte) { _, _ = conn.WriteTo(reply, from) })
	}
}

// serveDNSConn answers a connection: each message after its length, one after the other.
func (s *Stack) serveDNSConn(_ context.Context, conn net.Conn) {
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
			s.refused.add(ReasonMalformed, netip.AddrPort{}, "")
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		replies := make(chan []byte, 1)
		if !s.answer(query, true, func(reply []byte) { replies <- reply }) {
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

// asked is one question, read.
type asked struct {
	head dnsmessage.Header
	q    dnsmessage.Question
	name string // lower case, no dot at the end
	edns bool
	max  int // bytes of the answer
}

// found is the content of an answer: an error code, or records.
type found struct {
	code    dnsmessage.RCode
	ours    bool // about the cluster
	records []dnsmessage.Resource
}

// answer answers one message, if it is one that is answered: reply is called once then, at once or later by another
// goroutine, and answer is true.
func (s *Stack) answer(message []byte, tcp bool, reply func([]byte)) bool {
	a, code, ok := parseQuery(message, tcp)
	if !ok {
		s.refused.add(ReasonMalformed, netip.AddrPort{}, "")
		return false
	}
	if code == dnsmessage.RCodeSuccess && !s.queries.Allow() {
		s.refused.add(ReasonQueries, netip.AddrPort{}, a.name)
		code = dnsmessage.RCodeRefused
	}
	if code != dnsmessage.RCodeSuccess {
		reply(a.pack(found{code: code}))
		return true
	}
	if f, known := s.cluster(a); known {
		reply(a.pack(f))
		return true
	}
	if !s.cfg.Policy.resolves(a.name) {
		s.refused.add(ReasonName, netip.AddrPort{}, a.name)
		reply(a.pack(found{code: dnsmessage.RCodeRefused}))
		return true
	}
	select {
	case s.lookups <- struct{}{}:
	default:
		s.refused.add(ReasonQueries, netip.AddrPort{}, a.name)
		reply(a.pack(found{code: dnsmessage.RCodeServerFailure}))
		return true
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.lookups
		return false
	}
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		defer func() { <-s.lookups }()
		ctx, done := context.WithTimeout(s.ctx, lookupTime)
		defer done()
		reply(a.pack(s.look(ctx, a)))
	}()
	return true
}

// parseQuery parses a message. If code is not success, the question is not processed further; ok is false for a message
// without answer.
func parseQuery(message []byte, tcp bool) (a asked, code dnsmessage.RCode, ok bool) {
	var p dnsmessage.Parser
	var err error
	if len(message) > maxQuery {
		return a, 0, false
	}
	if a.head, err = p.Start(message); err != nil || a.head.Response {
		return a, 0, false
	}
	a.max = plainUDP
	if tcp {
		a.max = maxTCP
	}
	if a.head.OpCode != 0 {
		return a, dnsmessage.RCodeNotImplemented, true
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		return a, dnsmessage.RCodeFormatError, true
	}
	a.q = questions[0]
	a.name = strings.ToLower(strings.TrimSuffix(a.q.Name.String(), "."))
	if a.q.Class != dnsmessage.ClassINET {
		return a, dnsmessage.RCodeNotImplemented, true
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return a, dnsmessage.RCodeFormatError, true
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil || p.SkipAdditional() != nil {
			return a, dnsmessage.RCodeFormatError, true
		}
		if h.Type == dnsmessage.TypeOPT {
			a.edns = true
			if !tcp {
				a.max = min(max(int(h.Class), plainUDP), maxUDP)
			}
		}
	}
	return a, dnsmessage.RCodeSuccess, true
}

// pack builds the answer. One that is too long for its transport is cut to nothing and says so: it is asked for by TCP
// then.
func (a asked) pack(f found) []byte {
	head := dnsmessage.Header{
		ID: a.head.ID, Response: true, OpCode: a.head.OpCode, RecursionDesired: a.head.RecursionDesired,
		RecursionAvailable: true, Authoritative: f.ours, RCode: f.code,
	}
	b, err := a.build(head, f.records)
	if err != nil {
		head.RCode, head.Authoritative = dnsmessage.RCodeServerFailure, false
		b, err = a.build(head, nil)
	}
	if err == nil && len(b) > a.max {
		head.Truncated = true
		b, err = a.build(head, nil)
	}
	if err != nil { // not even the question can be said again
		head.RCode = dnsmessage.RCodeServerFailure
		a.q, a.edns = dnsmessage.Question{}, false
		b, _ = a.build(head, nil)
	}
	return b
}

func (a asked) build(head dnsmessage.Header, records []dnsmessage.Resource) ([]byte, error) {
	m := dnsmessage.Message{Header: head, Answers: records}
	if a.q.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{a.q}
	}
	if a.edns {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(maxUDP, head.RCode, false); err != nil {
			return nil, err
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	return m.Pack()
}

// record is one answer to the question.
func (a asked) record(ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: a.q.Name, Class: dnsmessage.ClassINET, TTL: ttl},
		Body: body}
}

// cluster answers for names of the cluster, and for names that nobody has on the internet; these are not looked up
// elsewhere.
func (s *Stack) cluster(a asked) (f found, known bool) {
	missing := found{code: dnsmessage.RCodeNameError, ours: true}
	if addr, reverse := reverseAddr(a.name); reverse {
		if !addr.IsValid() {
			return missing, true
		}
		if name := s.cfg.Reverse(addr); name != "" {
			f = found{ours: true}
			if to, err := dnsmessage.NewName(name + "."); err == nil && a.q.Type == dnsmessage.TypePTR {
				f.records = append(f.records, a.record(ttlCluster, &dnsmessage.PTRResource{PTR: to}))
			}
			return f, true
		}
		return missing, closed.Why(addr) != "" || s.hosts.have(addr)
	}
	if addrs := s.cfg.Names(a.name); len(addrs) > 0 {
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
	if a.name == s.cfg.Domain || s.cfg.Domain != "" && strings.HasSuffix(a.name, "."+s.cfg.Domain) {
		return missing, true
	}
	return missing, local(a.name) || checkName(a.name) != nil
}

// reverseAddr reads the address of a name below in-addr.arpa or ip6.arpa; it is none if the name is not of a whole
// address, or IPv6.
func reverseAddr(name string) (netip.Addr, bool) {
	if name == "ip6.arpa" || strings.HasSuffix(name, ".ip6.arpa") || name == "in-addr.arpa" {
		return netip.Addr{}, true
	}
	digits, reverse := strings.CutSuffix(name, ".in-addr.arpa")
	if !reverse {
		return netip.Addr{}, false
	}
	parts := strings.Split(digits, ".")
	if len(parts) != 4 {
		return netip.Addr{}, true
	}
	addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	if err != nil || !addr.Is4() {
		return netip.Addr{}, true
	}
	return addr, true
}

// look asks the host's resolver. Types that nothing needs, and AAAA, exist for no name: the overlay is IPv4 only.
func (s *Stack) look(ctx context.Context, a asked) found {
	name, out := a.name+".", found{}
	add := func(body dnsmessage.ResourceBody) {
		if len(out.records) < maxRecords {
			out.records = append(out.records, a.record(ttlOutside, body))
		}
	}
	var err error
	switch a.q.Type {
	case dnsmessage.TypeA:
		return s.lookA(ctx, a)
	case dnsmessage.TypePTR:
		var names []string
		if addr, reverse := reverseAddr(a.name); reverse {
			names, err = s.cfg.Resolve.LookupAddr(ctx, addr.String())
		}
		for _, n := range names {
			if to, err := dnsmessage.NewName(strings.TrimSuffix(n, ".") + "."); err == nil &&
				!local(strings.TrimSuffix(n, ".")) {
				add(&dnsmessage.PTRResource{PTR: to})
			}
		}
	case dnsmessage.TypeTXT:
		var texts []string
		texts, err = s.cfg.Resolve.LookupTXT(ctx, name)
		size := 0
		for _, t := range texts {
			if size += len(t); size <= maxTextSize {
				add(&dnsmessage.TXTResource{TXT: split(t)})
			}
		}
	case dnsmessage.TypeMX:
		var mx []*net.MX
		mx, err = s.cfg.Resolve.LookupMX(ctx, name)
		for _, m := range mx {
			if to, err := dnsmessage.NewName(m.Host); err == nil {
				add(&dnsmessage.MXResource{Pref: m.Pref, MX: to})
			}
		}
	case dnsmessage.TypeSRV:
		var srv []*net.SRV
		_, srv, err = s.cfg.Resolve.LookupSRV(ctx, "", "", name)
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

// lookA finds a name's addresses and drops those that are closed; the rest is open from now on by the rules that name
// it.
func (s *Stack) lookA(ctx context.Context, a asked) found {
	addrs, err := s.cfg.Resolve.LookupNetIP(ctx, "ip4", a.name+".")
	if err != nil {
		return found{code: codeOf(err)}
	}
	var open []netip.Addr
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() && closed.Why(addr) == "" && !s.hosts.have(addr) &&
			len(open) < maxAddresses {
			open = append(open, addr)
		}
	}
	if len(open) == 0 {
		// As if it did not exist: names in the provider's own network are not for the container.
		if len(addrs) > 0 {
			s.refused.add(ReasonAnswer, netip.AddrPort{}, a.name)
		}
		return found{code: dnsmessage.RCodeNameError}
	}
	if s.cfg.Policy.Mode == ModeAllowlist && !s.names.remember(open, s.cfg.Policy.naming(a.name), time.Now()) {
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

// split cuts a text into the strings of at most 255 bytes that a TXT record is of.
func split(text string) (out []string) {
	for len(text) > 255 {
		out, text = append(out, text[:255]), text[255:]
	}
	return append(out, text)
}
