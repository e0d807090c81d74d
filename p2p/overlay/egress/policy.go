package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-network/starling/p2p/closed"
)

// Mode is how far a container reaches beyond its overlay.
type Mode string

// The modes, narrowest first.
const (
	// ModeNone allows only the service address.
	ModeNone Mode = "none"
	// ModeAllowlist allows the destinations of the rules.
	ModeAllowlist Mode = "allowlist"
	// ModeInternet is every address that is not closed.
	ModeInternet Mode = "internet"
)

// ParseMode reads a mode. Errors: ErrPolicy.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case ModeNone, ModeAllowlist, ModeInternet:
		return m, nil
	}
	return "", fmt.Errorf("%w: mode %.40q, want none, allowlist or internet", ErrPolicy, text)
}

// ErrPolicy reports that a policy cannot be parsed; its text names the rule and a correction.
var ErrPolicy = errors.New("egress policy")

// Bounds of a policy.
const (
	MaxRules = 1024
	maxPorts = 64 // of one rule
	maxName  = 253
	maxLabel = 63
)

// mail reports whether a TCP port is one at which mail servers take mail from others (SMTP, and submission with TLS and
// without). No mode opens them: a stranger's container that sends mail puts its provider's address on block lists.
func mail(port uint16) bool { return port == 25 || port == 465 || port == 587 }

// portRange has both ends in it.
type portRange struct{ from, to uint16 }

// Rule is one line of an allow list: where to, and on which ports.
//
//	pypi.org                    the name, every port
//	*.pythonhosted.org:443      every name below it (not the name itself)
//	93.184.216.34:80,443        an address
//	151.101.0.0/16:8000-8100    a range of addresses
type Rule struct {
	name   string // without the *. of a wildcard
	below  bool   // names below name, not itself
	prefix netip.Prefix
	ports  []portRange // none: all
	text   string
}

// String is the rule as it was written.
func (r Rule) String() string { return r.text }

// ParseRule reads HOST[:PORT[-PORT][,…]], where HOST is a domain name, *.NAME, an IPv4 address or a range a.b.c.d/n.
// Errors: ErrPolicy.
func ParseRule(text string) (Rule, error) {
	r := Rule{text: text}
	bad := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("%w: rule %.300q: %s", ErrPolicy, text, fmt.Sprintf(format, args...))
	}
	if len(text) > maxName+maxPorts*12 {
		return bad("too long")
	}
	if strings.Contains(text, "://") {
		return bad("is an address of the web: name the host, such as %q", "pypi.org:443")
	}
	if strings.Count(text, ":") > 1 {
		return bad("is IPv6: clusters speak IPv4 with the outside")
	}
	host, ports, hasPorts := strings.Cut(text, ":")
	if hasPorts {
		var err error
		if r.ports, err = parsePorts(ports); err != nil {
			return bad("%v", err)
		}
	}
	switch {
	case host == "":
		return bad("names no host")
	case host == "*":
		return bad("everything is mode internet")
	case strings.Contains(host, "/"):
		p, err := netip.ParsePrefix(host)
		if err != nil || !p.Addr().Is4() {
			return bad("want a range such as 93.184.216.0/24")
		}
		if p != p.Masked() {
			return bad("bits are set beyond the range's length: write %v", p.Masked())
		}
		r.prefix = p
	case strings.Trim(host, "0123456789.") == "":
		a, err := netip.ParseAddr(host)
		if err != nil {
			return bad("is no IPv4 address")
		}
		r.prefix = netip.PrefixFrom(a, 32)
	default:
		name := strings.ToLower(host)
		if name, r.below = strings.CutPrefix(name, "*."); r.below && name == "" {
			return bad("names no domain")
		}
		if err := checkName(name); err != nil {
			return bad("%v", err)
		}
		r.name = name
	}
	if r.prefix.IsValid() && closed.Whole(r.prefix) {
		return bad("%v is %s, which no rule opens", r.prefix, closed.Why(r.prefix.Addr()))
	}
	return r, nil
}

func parsePorts(text string) (out []portRange, err error) {
	for i, part := range strings.Split(text, ",") {
		if i == maxPorts {
			return nil, fmt.Errorf("at most %d ports and ranges", maxPorts)
		}
		from, to, both := strings.Cut(part, "-")
		var p portRange
		if p.from, err = parsePort(from); err != nil {
			return nil, err
		}
		if p.to = p.from; both {
			if p.to, err = parsePort(to); err != nil {
				return nil, err
			}
		}
		switch {
		case p.to < p.from:
			return nil, fmt.Errorf("ports %s run backwards", part)
		case p.from == p.to && mail(p.from):
			return nil, fmt.Errorf("port %d is of mail servers, which no rule opens", p.from)
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '+' || text[0] == '0' {
		return 0, fmt.Errorf("%.20q is no port, want 1 to 65535", text)
	}
	return uint16(n), nil
}

// checkName refuses names that cannot be looked up on the internet: they have lower case and at least two labels.
func checkName(name string) error {
	if len(name) > maxName {
		return errors.New("a name has at most 253 characters")
	}
	labels := strings.Split(name, ".")
	if len(labels) < 2 {
		return fmt.Errorf("%.80q is no full domain name", name)
	}
	for _, l := range labels {
		switch {
		case l == "" || len(l) > maxLabel:
			return fmt.Errorf("%.80q has a part of %d characters, want 1 to %d", name, len(l), maxLabel)
		case l[0] == '-' || l[len(l)-1] == '-':
			return fmt.Errorf("%.80q has a part with a dash at its end", name)
		}
		for i := range len(l) {
			if c := l[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return fmt.Errorf("%.80q has %q in it: a name is of letters, "+
					"digits and dashes (others as xn--…), and * stands only at its beginning",
					name, c)
			}
		}
	}
	if local(name) {
		return fmt.Errorf("%.80q is a name of local networks", name)
	}
	return nil
}

// localDomains are never looked up at the host's resolver: its answers are of its own network (RFC 6761, RFC 6762, RFC
// 8375, and others in common use).
var localDomains = []string{
	"local", "localhost", "localdomain", "lan", "home", "internal", "intranet", "private", "corp", "home.arpa",
	"invalid", "test", "onion",
}

// local reports whether a name cannot be one on the internet.
func local(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	return slices.ContainsFunc(localDomains, func(d string) bool { return strings.HasSuffix(name, "."+d) || name == d })
}

// ParseRules reads an allow list. Errors: ErrPolicy.
func ParseRules(texts []string) ([]Rule, error) {
	if len(texts) > MaxRules {
		return nil, fmt.Errorf("%w: %d rules, at most %d", ErrPolicy, len(texts), MaxRules)
	}
	rules := make([]Rule, len(texts))
	for i, text := range texts {
		var err error
		if rules[i], err = ParseRule(text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// Policy is the set of destinations that a provider allows to containers. Closed addresses (see package closed) and the
// host's own stay closed in every mode.
type Policy struct {
	Mode  Mode
	Allow []Rule // of ModeAllowlist
}

// Check holds mode and rules to each other. Errors: ErrPolicy.
func (p Policy) Check() error {
	if _, err := ParseMode(string(p.Mode)); err != nil {
		return err
	}
	switch {
	case p.Mode == ModeAllowlist && len(p.Allow) == 0:
		return fmt.Errorf("%w: mode allowlist: no rules: add rules, or use mode none",
			ErrPolicy)
	case p.Mode != ModeAllowlist && len(p.Allow) > 0:
		return fmt.Errorf("%w: %d rules without effect in mode %s: use mode allowlist, or remove them",
			ErrPolicy, len(p.Allow), p.Mode)
	}
	return nil
}

// Asked returns the policy for a tenant that requests egress, or does not.
func (p Policy) Asked(outside bool) Policy {
	if !outside {
		return Policy{Mode: ModeNone}
	}
	return p
}

func (r *Rule) opens(port uint16) bool {
	return len(r.ports) == 0 || slices.ContainsFunc(r.ports, func(p portRange) bool {
		return p.from <= port && port <= p.to
	})
}

func (r *Rule) names(name string) bool {
	if r.name == "" {
		return false
	}
	if r.below {
		return len(name) > len(r.name)+1 && strings.HasSuffix(name, r.name) && name[len(name)-len(r.name)-1] == '.'
	}
	return name == r.name
}

// naming are the rules that name a domain name, by index.
func (p *Policy) naming(name string) (out []int) {
	for i := range p.Allow {
		if p.Allow[i].names(name) {
			out = append(out, i)
		}
	}
	return out
}

// resolves reports whether a name may be asked for on the internet.
func (p *Policy) resolves(name string) bool {
	switch p.Mode {
	case ModeInternet:
		return true
	case ModeAllowlist:
		return len(p.naming(name)) > 0
	}
	return false
}
