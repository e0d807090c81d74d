// Package s3 has the names of objects in S3-compatible storage, as jobs give them for inputs and outputs. It opens no
// connection: package objects does, on the buyer's side only.
//
//	s3://BUCKET/KEY            an object
//	s3://BUCKET/FOLDER/        a folder: all objects whose keys begin with FOLDER/
//	s3://BUCKET/FOLDER/*.bin   the objects directly in a folder that match *, ? and [a-z]
//
// A backslash before *, ?, [ or another backslash stands for that character. A key is a path: it has no empty parts, no
// ".." and no control characters.
package s3

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scheme begins the names.
const Scheme = "s3://"

// MaxKey bounds a key, bytes. It is S3's own limit.
const MaxKey = 1024

// ErrName means that a text names no object of S3.
var ErrName = errors.New("name of an S3 object")

// ErrKey means that a bucket has a key that is no path, or two keys that cannot be in one folder.
var ErrKey = errors.New("key in an S3 bucket")

// Name is the name of an object, of a folder, or of the objects in a folder that match a pattern.
type Name struct {
	Bucket  string
	Key     string // of a folder with a slash at its end; empty for the whole bucket
	Pattern string // is optional; in the form of path.Match
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

const special = `*?[\`

// Parse reads the name of an object or folder.
func Parse(text string) (Name, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	bucket, key, slash := strings.Cut(rest, "/")
	switch {
	case !ok || !slash:
		return Name{}, fmt.Errorf("%w: %.80q, want s3://BUCKET/FOLDER/ or s3://BUCKET/KEY", ErrName, text)
	case !bucketName.MatchString(bucket) || strings.Contains(bucket, ".."):
		return Name{}, fmt.Errorf("%w: bucket %.80q, want 3 to 63 of a-z, 0-9, . and -", ErrName, bucket)
	}
	n := Name{Bucket: bucket}
	folder, last := "", key
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		folder, last = key[:i+1], key[i+1:]
	}
	n.Key, ok = literal(folder)
	if !ok {
		return Name{}, fmt.Errorf("%w: %.80q: only the last part may have *, ? and [", ErrName, text)
	}
	if plain, ok := literal(last); ok {
		n.Key += plain
	} else if _, err := path.Match(last, ""); err != nil {
		return Name{}, fmt.Errorf("%w: %.80q: malformed pattern %.80q", ErrName, text, last)
	} else {
		n.Pattern = last
	}
	if err := checkKey(strings.TrimSuffix(n.Key, "/")); n.Key != "" && err != nil {
		return Name{}, fmt.Errorf("%w: %.80q: %w", ErrName, text, err)
	}
	if n.Key+n.Pattern == "/" || len(n.Pattern) > MaxKey {
		return Name{}, fmt.Errorf("%w: %.80q: the key is not clean", ErrName, text)
	}
	return n, nil
}

// ParseFolder reads the name of a folder as a destination: the slash at its end is optional, and a bucket alone is its
// whole.
func ParseFolder(text string) (Name, error) {
	if _, ok := literal(text); !ok {
		return Name{}, fmt.Errorf(`%w: %.80q: a destination is one folder: write \* for *`, ErrName, text)
	}
	return Parse(strings.TrimSuffix(text, "/") + "/")
}

// literal returns a text without its backslashes. ok is false for a pattern, and for a backslash before other
// characters.
func literal(text string) (plain string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\\' && i+1 < len(text) && strings.IndexByte(special, text[i+1]) >= 0:
			i++
			out.WriteByte(text[i])
		case strings.IndexByte(special, b) >= 0:
			return "", false
		default:
			out.WriteByte(b)
		}
	}
	return out.String(), true
}

// checkKey returns an error unless a key is a clean relative path of printable text.
func checkKey(key string) error {
	unprintable := func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }
	switch {
	case len(key) > MaxKey:
		return fmt.Errorf("got %d bytes, want at most %d", len(key), MaxKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unprintable):
		return errors.New("the key has control characters, or is no UTF-8")
	case !fs.ValidPath(key) || key == ".":
		return errors.New("the key is not clean: it has .., . or an empty part")
	}
	return nil
}

// Folder reports whether the name is of a folder, or of objects in it.
func (n Name) Folder() bool {
	return n.Pattern != "" || n.Key == "" || strings.HasSuffix(n.Key, "/")
}

// String is the name as Parse reads it.
func (n Name) String() string {
	var out strings.Builder
	out.WriteString(Scheme + n.Bucket + "/")
	for i := range len(n.Key) {
		if strings.IndexByte(special, n.Key[i]) >= 0 {
			out.WriteByte('\\')
		}
		out.WriteByte(n.Key[i])
	}
	out.WriteString(n.Pattern)
	return out.String()
}

// Join is the object at a relative path in a folder.
func (n Name) Join(rel string) Name { return Name{Bucket: n.Bucket, Key: n.Key + rel} }

// Below returns the path of a listed key in the folder n. ok is false if the pattern does not match, and for the key of
// a folder itself, which ends with a slash. The error is ErrKey if the key is outside the folder or is no clean path.
func (n Name) Below(key string) (rel string, ok bool, err error) {
	rel, inside := strings.CutPrefix(key, n.Key)
	if !inside {
		return "", false, fmt.Errorf("%w %s: %.80q: the server listed a key outside %s", ErrKey, n.Bucket, key, n)
	}
	if rel == "" {
		return "", false, nil
	}
	if err := checkKey(strings.TrimSuffix(rel, "/")); err != nil {
		return "", false, fmt.Errorf("%w %s: %.80q: %w", ErrKey, n.Bucket, key, err)
	}
	if strings.HasSuffix(rel, "/") {
		return "", false, nil
	}
	if n.Pattern == "" {
		return rel, true, nil
	}
	ok, err = path.Match(n.Pattern, rel)
	return rel, ok && !strings.Contains(rel, "/"), err
}
