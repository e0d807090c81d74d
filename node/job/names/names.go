// Package names checks the names, texts and digests that users give the parts of a job.
package names

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// Max is the most bytes of a name.
const Max = 63

// IsName reports whether s is a name: 1 to Max of a-z, 0-9 and '-', with neither end a '-'.
func IsName(s string) bool {
	if len(s) < 1 || len(s) > Max || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return only(s, func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' })
}

// IsLabel reports whether s is a label's name.
func IsLabel(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '/' || c == '-'
	})
}

// IsVariable reports whether s can name a variable of the environment.
func IsVariable(s string) bool {
	return len(s) >= 1 && len(s) <= 256 && !(s[0] >= '0' && s[0] <= '9') && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '_'
	})
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// IsText reports whether s is text without NUL.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// SumCID returns the CID of content with a SHA-256 in hexadecimal.
func SumCID(text string) (string, error) {
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != 32 || text != strings.ToLower(text) {
		return "", fmt.Errorf("sha256: got %.80q, want 64 hexadecimal digits in lower case", text)
	}
	mh, err := multihash.Encode(sum, multihash.SHA2_256)
	if err != nil {
		return "", err
	}
	return cid.NewCidV1(cid.Raw, mh).String(), nil
}

// CheckCID returns an error unless text is the CID of a blob.
func CheckCID(text string) error {
	c, err := cid.Decode(text)
	if err != nil {
		return fmt.Errorf("%.80q is not a CID", text)
	}
	if p := c.Prefix(); p.Version != 1 || p.Codec != cid.Raw || p.MhType != 0x12 || p.MhLength != 32 ||
		c.String() != text {
		return fmt.Errorf("%.80q is not a raw CIDv1 with SHA-256 in base32", text)
	}
	return nil
}
