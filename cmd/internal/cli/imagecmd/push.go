package imagecmd

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/userdocker"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// Pushed is an image that is stored on the peer.
type Pushed struct {
	Image    string `json:"image"` // its name in jobs
	Platform string `json:"platform"`
	Layers   int    `json:"layers"`
	Size     int64  `json:"size"`     // bytes of all parts
	Uploaded int64  `json:"uploaded"` // bytes that the peer did not have
}

// push stores the image of an archive on the peer. name is optional: the archive's own is the next choice.
func push(ctx context.Context, c *api.Client, r io.Reader, name string, p *cli.Progress) (Pushed, error) {
	u := &uploader{peer: c, p: p}
	i, err := readArchive(ctx, r, u.store)
	if err != nil {
		return Pushed{}, err
	}
	if name == "" {
		name = i.Name
	}
	if err := u.store(ctx, partOf(i.Config), bytes.NewReader(i.Config)); err != nil {
		return Pushed{}, err
	}
	u.image = pushedName(name, partOf(i.Manifest).Digest)
	if err := u.store(ctx, partOf(i.Manifest), bytes.NewReader(i.Manifest)); err != nil {
		return Pushed{}, err
	}
	out := Pushed{Image: u.image, Platform: i.Platform, Layers: len(i.Layers),
		Uploaded: u.uploaded, Size: partOf(i.Config).Size + partOf(i.Manifest).Size}
	counted := map[string]bool{}
	for _, l := range i.Layers {
		if !counted[l.Digest] {
			counted[l.Digest], out.Size = true, out.Size+l.Size
		}
	}
	return out, nil
}

// pushedName is the name of a pushed image: without the registry of the image's own name.
func pushedName(name, digest string) string {
	own := "image"
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		own = strings.TrimPrefix(reference.Path(named), "library/")
		if tagged, ok := named.(reference.Tagged); ok {
			own += ":" + tagged.Tag()
		}
	}
	of := func(own string) string { return images.Pushed + "/" + own + "@sha256:" + digest }
	if runtime.CheckImage(of(own)) != nil {
		own = "image"
	}
	return of(own)
}

// uploader stores the parts of an image on the peer that it does not have.
type uploader struct {
	peer     *api.Client
	p        *cli.Progress
	image    string // the name to note with the next part, the manifest
	uploaded int64
}

func (u *uploader) store(ctx context.Context, p part, r io.ReadSeeker) error {
	var h sign.Hash
	if _, err := hex.Decode(h[:], []byte(p.Digest)); err != nil {
		return err
	}
	c, err := workload.CIDOf(h)
	if err != nil {
		return err
	}
	body, err := u.peer.GetBlob(ctx, c.String())
	if err == nil {
		if err := body.Close(); err != nil || u.image == "" { // unread
			return err
		}
		u.uploaded -= p.Size // the name comes with the manifest
	}
	shown := &shownReader{Reader: r, p: u.p, size: p.Size}
	b, err := api.PutBlob.Call(ctx, u.peer, api.Upload{Data: shown, Image: u.image})
	if err != nil {
		return fmt.Errorf("uploading the image: %w", err)
	}
	if b.CID != c.String() {
		return fmt.Errorf("uploading the image: part sha256:%s: the peer has stored %s", p.Digest, b.CID)
	}
	u.uploaded += p.Size
	return nil
}

// statusEvery is the number of bytes between two progress reports.
const statusEvery = 1 << 20

// shownReader reports its progress.
type shownReader struct {
	io.Reader
	p                 *cli.Progress
	size, done, shown int64
}

func (s *shownReader) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.done += int64(n)
	if s.shown == 0 || s.done-s.shown >= statusEvery {
		s.shown = s.done
		s.p.Status("uploading a layer: %s of %s", stream.Size(s.done), stream.Size(s.size))
	}
	return n, err
}

// Push stores an image of the user's container engine on the peer, and says so.
func Push(
	ctx context.Context, a *cli.App, c *api.Client, name string, found userdocker.Found,
) (done Pushed, err error) {
	p := a.Progress()
	defer p.Clear()
	p.Status("reading %s from docker", name)
	saved, err := userdocker.Save(ctx, a.Getenv, found.ID)
	if err != nil {
		return done, err
	}
	done, err = push(ctx, c, saved, name, p)
	if closed := saved.Close(); closed != nil && (err == nil || ctx.Err() == nil) {
		return done, fmt.Errorf("reading %s from docker: %w", name, closed)
	}
	if err == nil {
		p.Clear()
		describe(a, name, done)
	}
	return done, err
}

// pushFile stores the image of an archive on the peer, and says so; "-" is standard input.
func pushFile(ctx context.Context, a *cli.App, c *api.Client, path string) (Pushed, error) {
	p := a.Progress()
	defer p.Clear()
	r, name := a.In, ""
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return Pushed{}, &cli.Error{Code: cli.ExitUsage, Err: err}
		}
		defer f.Close()
		r = f
	}
	done, err := push(ctx, c, r, name, p)
	if err != nil {
		return done, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	p.Clear()
	describe(a, path, done)
	return done, nil
}

// describe says which image is stored, and warns of a platform that few providers have.
func describe(a *cli.App, name string, p Pushed) {
	a.Say("%s is on the peer as %s: %s, %s, of which %s were uploaded", name, p.Image, cli.Count(p.Layers, "layer"),
		stream.Size(p.Size), stream.Size(p.Uploaded))
	if p.Platform != usual {
		a.Say("warning: the image is made for %s, and most providers are %s: build it with docker build --platform "+
			"%[2]s", p.Platform, usual)
	}
}
