package egress

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

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

// pack builds the answer. An answer that is too long for UDP is empty and marked as truncated, so that the client
// retries by TCP.
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
	if err != nil { // the question cannot be repeated
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

// split cuts a text into the strings of at most 255 bytes that a TXT record is of.
func split(text string) (out []string) {
	for len(text) > 255 {
		out, text = append(out, text[:255]), text[255:]
	}
	return append(out, text)
}
