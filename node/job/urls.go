package job

import (
	"fmt"
	"strings"

	"github.com/starling-network/starling/node/files/hub"
	"github.com/starling-network/starling/node/files/ipfs"
	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job/names"
)

// sumMark stands between a URL and the SHA-256 of its content, in hexadecimal: a fragment, which is never sent.
const sumMark = "#sha256="

// IsURL reports whether a source is of the web: providers read it from there.
func IsURL(source string) bool {
	return strings.HasPrefix(source, web.Scheme) || IsHub(source) || IsS3(source) || IsIPFS(source)
}

// IsIPFS reports whether a source is a file or directory of IPFS; the buyer's client finds its digest.
func IsIPFS(source string) bool { return strings.HasPrefix(source, ipfs.Scheme) }

// IsHub reports whether a source is a file of a model hub; the buyer's client finds its URL and digest.
func IsHub(source string) bool { return strings.HasPrefix(source, hub.Scheme) }

// IsS3 reports whether a source is an object of S3, or a folder there; the buyer's client signs URLs of objects.
func IsS3(source string) bool { return strings.HasPrefix(source, s3.Scheme) }

// S3Name returns the name of a source in S3, and the CID of its content if the source has a SHA-256.
func S3Name(source string) (n s3.Name, id string, err error) {
	name, sum, named := strings.Cut(source, sumMark)
	if n, err = s3.Parse(name); err != nil || !named {
		return n, "", err
	}
	if n.Folder() {
		return n, "", fmt.Errorf("sha256: %.80q is a folder, and sha256 is of one object: leave it out", name)
	}
	id, err = names.SumCID(sum)
	return n, id, err
}

// IsFolder reports whether a source is a folder of S3, which becomes a directory of the program.
func IsFolder(source string) bool {
	n, _, err := S3Name(strings.ReplaceAll(source, RankMark, "0"))
	return err == nil && n.Folder()
}

// WithSum returns a URL with the SHA-256 of its content.
func WithSum(url, sum string) string { return url + sumMark + sum }

// Named returns the content that a source names by its digest: of cid: and a CID, or of a URL with a SHA-256. ok is
// false for others: a file, and a URL that has to be read for its digest.
func Named(source string) (b Blob, ok bool) {
	if c, ok := strings.CutPrefix(source, CIDScheme); ok {
		return Blob{CID: c}, true
	}
	url, sum, ok := strings.Cut(source, sumMark)
	if !ok || !strings.HasPrefix(source, web.Scheme) {
		return Blob{}, false
	}
	c, err := names.SumCID(sum)
	if err != nil {
		return Blob{}, false
	}
	return Blob{CID: c, URLs: []string{url}}, true
}

// badURL returns the problem of a web source; "" if there is none.
func badURL(source string) string {
	if IsHub(source) {
		if _, err := hub.Parse(strings.ReplaceAll(source, RankMark, "0")); err != nil {
			return err.Error()
		}
		return ""
	}
	if IsIPFS(source) {
		if _, err := ipfs.Parse(strings.ReplaceAll(source, RankMark, "0")); err != nil {
			return err.Error()
		}
		return ""
	}
	url, sum, named := strings.Cut(source, sumMark)
	if IsS3(source) {
		if _, _, err := S3Name(strings.ReplaceAll(source, RankMark, "0")); err != nil {
			return err.Error()
		}
	} else if err := web.Check(url); err != nil {
		return err.Error()
	}
	if !named {
		return ""
	}
	if strings.Contains(url, RankMark) {
		return RankMark + " names several files, and sha256 one of them: leave it out"
	}
	if _, err := names.SumCID(sum); err != nil {
		return err.Error()
	}
	return ""
}

// Here reports whether this content is on the buyer's peer.
func (b Blob) Here() bool { return len(b.URLs) == 0 || b.Local }

// badURLs returns the problem of the URLs of a source's content; "" if there is none.
func (b Blob) badURLs(source string) string {
	switch {
	case len(b.URLs) > web.MaxURLs:
		return fmt.Sprintf("%d URLs, at most %d", len(b.URLs), web.MaxURLs)
	case len(b.URLs) > 0 && b.Tree:
		return "a directory has no URL"
	}
	for _, u := range b.URLs {
		if err := web.Check(u); err != nil {
			return err.Error()
		}
	}
	named, ok := Named(source)
	if IsS3(source) {
		_, id, err := S3Name(source)
		named.CID, ok = id, err == nil && id != ""
	}
	if ok && named.CID != b.CID {
		return fmt.Sprintf("got content %.80s, want %s", b.CID, named.CID)
	}
	return ""
}
