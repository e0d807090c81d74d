package egress

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"pypi.org", "PyPI.org:443", "*.pythonhosted.org:443", "93.184.216.34", "93.184.216.34:80,443", "151.101.0.0/16:8000-8100",
		"0.0.0.0/0", "xn--bcher-kva.example:443", "_x.example.org", "8.0.0.0/5", "example.org:1-65535",
	} {
		if r, err := ParseRule(good); err != nil || r.String() != good {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                      "names no host",
		"*":                     "mode internet",
		"*.":                    "names no domain",
		"*.org":                 "no full domain name",
		"localhost":             "no full domain name",
		"router.lan":            "local networks",
		"a.*.org":               "has '*' in it",
		"bücher.example":        "letters, digits and dashes",
		"-a.org":                "dash",
		"a..org":                "0 characters",
		"https://pypi.org/":     "name the host",
		"[2606:4700::1111]:443": "IPv6",
		"::1":                   "IPv6",
		"10.0.0.0/8":            "a private network, which no rule opens",
		"192.168.1.1:80":        "which no rule opens",
		"169.254.169.254":       "metadata",
		"127.0.0.1":             "loopback",
		"93.184.216.34/24":      "write 93.184.216.0/24",
		"93.184.216.0/33":       "want a range",
		"1.2.3":                 "no IPv4 address",
		"pypi.org:":             "is no port",
		"pypi.org:0":            "is no port",
		"pypi.org:65536":        "is no port",
		"pypi.org:+80":          "is no port",
		"pypi.org:080":          "is no port",
		"pypi.org:443,":         "is no port",
		"pypi.org:90-80":        "run backwards",
		"pypi.org:25":           "mail",
		"pypi.org:443,465":      "mail",
		"pypi.org:587":          "mail",
		"pypi.org:" + strings.Repeat("1,", 64) + "1": "at most 64",
		strings.Repeat("a", 64) + ".org":             "64 characters",
		strings.Repeat("a.", 130) + "org":            "253 characters",
		strings.Repeat("a", 5000):                    "too long",
	} {
		if _, err := ParseRule(bad); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q in it", bad, err, want)
		}
	}
	if _, err := ParseRules(make([]string, MaxRules+1)); !errors.Is(err, ErrPolicy) {
		t.Errorf("too many rules: %v", err)
	}
}

func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	r, err := ParseRules([]string{"pypi.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    Policy
		good bool
	}{
		{Policy{Mode: ModeNone}, true}, {Policy{Mode: ModeInternet}, true}, {Policy{Mode: ModeAllowlist, Allow: r}, true},
		{Policy{}, false}, {Policy{Mode: "all"}, false}, {Policy{Mode: ModeAllowlist}, false}, {Policy{Mode: ModeInternet, Allow: r}, false},
	} {
		if err := c.p.Check(); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.p, err)
		}
	}
}

// FuzzParseRule holds that a rule that is taken reads the same again, and that names below a wildcard are below it.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"pypi.org:443", "*.a.org", "1.2.3.0/24:1-2,3", "10.0.0.1", "[::1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text)
		if err != nil {
			if !errors.Is(err, ErrPolicy) || len(err.Error()) > 8<<10 {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
			t.Fatalf("%v reads again as %v, %v", r, again, err)
		}
		if r.name != "" && (r.names("x."+r.name) != r.below || r.names(r.name) == r.below || r.names("x"+r.name)) {
			t.Fatalf("%v names the wrong ones", r)
		}
	})
}
