package gpu

import (
	"regexp"
	"slices"
	"strings"
)

const (
	// ClassPrefix is before the model in a market class.
	ClassPrefix = "gpu/"
	// maxModelClass is the room of market.Class for the model.
	maxModelClass = 32 - len(ClassPrefix)
	// maxProfile is the part of it for the profile of a MIG slice.
	maxProfile = 18
	// unknownModel is the class of a name without the name of a model.
	unknownModel = "unknown"
)

// noise are words of product names that do not distinguish models: makers, memory, decoration. A card for PCIe, or a
// pair that is joined by NVLink (NVL), is another model than the module of that name: it has another memory and another
// power limit. Orders specify memory in addition to the class.
var noise = regexp.MustCompile(
	`^(nvidia|amd|advanced|micro|devices|inc|corporation|tesla|geforce|instinct|gpu|graphics|device|generation|` +
		`edition|oam|simulated|sxm\d?|hbm\d[a-z]?|\d+gi?b)$`)

// glued is a series and its number without a space between, as people type them.
var glued = regexp.MustCompile(`^(rtx|gtx|rx)(\d[a-z0-9]*)$`)

// ModelClass returns the market class of a model: a-z, 0-9 and '-', 1 to 28 characters. All names of one model give one
// class, and a class gives itself: "NVIDIA A100-SXM4-80GB", "A100" and "a100" are all "a100"; a card for PCIe is
// "a100-pcie", a MIG slice "a100-mig-1g-10gb".
func ModelClass(model string) string {
	words := strings.FieldsFunc(strings.ToLower(model), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	suffix := ""
	if at := slices.Index(words, "mig"); at >= 0 {
		profile := slices.DeleteFunc(slices.Clone(words[at:]), func(w string) bool { return w == "simulated" })
		if text := shorten(profile, maxProfile); text != profile[0] {
			suffix = "-" + text
		}
		words = words[:at]
	}
	var kept []string
	for _, w := range words {
		if m := glued.FindStringSubmatch(w); m != nil {
			kept = append(kept, m[1], m[2])
		} else {
			kept = append(kept, w)
		}
	}
	kept = slices.DeleteFunc(kept, noise.MatchString)
	if len(kept) > 1 && kept[0] == "radeon" && kept[1] == "rx" {
		kept = kept[1:]
	}
	if len(kept) > 0 {
		if text := shorten(kept, maxModelClass-len(suffix)); !noise.MatchString(text) {
			return text + suffix
		}
	}
	return unknownModel + suffix
}

// shorten joins as many whole words as fit, of a first word too long its beginning.
func shorten(words []string, most int) string {
	text := words[0]
	if len(text) > most {
		text = text[:most]
	}
	for _, w := range words[1:] {
		if len(text)+1+len(w) > most {
			break
		}
		text += "-" + w
	}
	return text
}
