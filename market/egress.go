package market

// Egress is what containers reach outside their provider: classes of which each gives all that those before it give.
type Egress uint8

// The classes.
const (
	EgressNone     Egress = iota // nothing
	EgressListed                 // the provider's list of names and addresses
	EgressInternet               // the internet
)

var egressNames = [...]string{"none", "allowlist", "internet"}

// String is the class in one word, as the provider's configuration has it.
func (e Egress) String() string {
	if int(e) < len(egressNames) {
		return egressNames[e]
	}
	return "unknown"
}

// MarshalText is String.
func (e Egress) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (e *Egress) UnmarshalText(text []byte) error {
	for i, name := range egressNames {
		if string(text) == name {
			*e = Egress(i)
			return nil
		}
	}
	return malformed("egress", "%.20q", text)
}

// Refuse is what is said of an order that takes the class want where only e is given; nil where e is enough.
func (e Egress) Refuse(want Egress) *Refusal {
	switch {
	case e >= want:
		return nil
	case e == EgressListed:
		return Refuse(ReasonEgress, "this provider lets containers reach only what it lists; bring what they need as inputs")
	}
	return Refuse(ReasonEgress, "this provider gives containers no way to the internet; bring what they need as inputs")
}

func (e Egress) check(field string) error {
	_, err := egressFrom(field, uint32(e))
	return err
}

// egressFrom reads a class as it travels.
func egressFrom(field string, n uint32) (Egress, error) {
	if n >= uint32(len(egressNames)) {
		return 0, malformed(field, "%d", n)
	}
	return Egress(n), nil
}
