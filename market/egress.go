package market

// Egress is the class of a container's network access outside of its provider. Each class includes all lower ones.
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

// UnmarshalText parses the output of MarshalText.
func (e *Egress) UnmarshalText(text []byte) error {
	for i, name := range egressNames {
		if string(text) == name {
			*e = Egress(i)
			return nil
		}
	}
	return malformed("egress", "%.20q", text)
}

// Refuse returns the refusal of an order that needs class want at a provider of class e. It returns nil if e suffices.
func (e Egress) Refuse(want Egress) *Refusal {
	switch {
	case e >= want:
		return nil
	case e == EgressListed:
		return Refuse(ReasonEgress,
			"this provider lets containers reach only its listed addresses; pass other data as inputs")
	}
	return Refuse(ReasonEgress, "this provider gives containers no way to the internet; pass the data as inputs")
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
