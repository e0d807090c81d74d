package templatecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipfs/go-cid"
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job/template"
)

// filePins is the file of accepted publishers in a home directory.
const filePins = "templates.json"

// finder finds templates by their names.
type finder struct {
	app    *cli.App
	accept string      // --accept-publisher
	web    *web.Client // optional; if nil, one that reads public addresses
}

func (f *finder) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.accept, "accept-publisher", "", "key of an index's publisher to accept from now on")
}

// found is a template and its origin.
type found struct {
	template.Template
	foreign bool // not built in
}

// find returns the template of a name.
func (f finder) find(ctx context.Context, name string) (found, error) {
	index, of, indexed := strings.Cut(name, "#")
	if !indexed && f.accept != "" {
		return found{}, cli.Usagef("--accept-publisher: %.80q is not of an index: want INDEX#NAME", name)
	}
	switch {
	case indexed:
		t, err := f.inIndex(ctx, index, of)
		return found{t, true}, err
	case strings.ContainsAny(name, `/\`) || name == "." || name == "..":
		t, err := template.Open(name)
		return found{t, true}, usage(err)
	}
	t, err := template.Builtin(name)
	if err != nil {
		return found{}, cli.WithHint(usage(err), "starling job template ls; a directory is given as ./%.40s", name)
	}
	return found{Template: t}, nil
}

// usage is the error of a template that the user should not have named.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &cli.Error{Code: cli.ExitUsage, Err: err}
}

// place writes the template's files into the cache, and returns their directory. Its name is the template's digest.
func (t found) place(a *cli.App) (string, error) {
	cache, err := a.Cache()
	if err != nil {
		return "", err
	}
	all := filepath.Join(cache, "templates")
	dir := filepath.Join(all, t.Digest().String(), t.Name)
	there := func() bool {
		kept, err := template.Open(dir)
		return err == nil && kept.Digest() == t.Digest()
	}
	if there() {
		return dir, nil
	}
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(all, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := t.Write(filepath.Join(tmp, t.Name)); err != nil {
		return "", err
	}
	err = errors.Join(os.RemoveAll(filepath.Dir(dir)), os.Rename(tmp, filepath.Dir(dir)))
	if err != nil && !there() { // another process may have been faster
		return "", fmt.Errorf("keeping the template %s: %w", t.Name, err)
	}
	return dir, nil
}

// inIndex returns a template of an index.
func (f finder) inIndex(ctx context.Context, at, name string) (template.Template, error) {
	i, err := f.index(ctx, at)
	if err != nil {
		return template.Template{}, err
	}
	e, err := i.Find(name)
	if err != nil {
		return template.Template{}, usage(err)
	}
	b, err := f.read(ctx, beside(at, e.Archive()), template.MaxArchive)
	if err != nil {
		return template.Template{}, fmt.Errorf("reading the template %s: %w", name, err)
	}
	t, err := template.Unpack(ctx, name, b, e.Digest)
	return t, usage(err)
}

// index reads an index of an accepted publisher.
func (f finder) index(ctx context.Context, at string) (template.Index, error) {
	g, err := f.app.Genesis()
	if err != nil {
		return template.Index{}, err
	}
	var accept sign.Key
	if f.accept != "" {
		if accept, err = sign.ParseKey(f.accept); err != nil {
			return template.Index{}, cli.Usagef("--accept-publisher: %w", err)
		}
	}
	if !isURL(at) {
		if at, err = filepath.Abs(at); err != nil {
			return template.Index{}, err
		}
	}
	b, err := f.read(ctx, at, template.MaxIndex)
	if err != nil {
		return template.Index{}, usage(fmt.Errorf("reading the index: %w", err))
	}
	i, err := template.ParseIndex(b, g.Domain())
	if err != nil {
		return i, usage(err)
	}
	home, err := f.app.Home()
	if err != nil {
		return i, err
	}
	file := filepath.Join(home, filePins)
	pins, err := template.LoadPins(file)
	if err != nil {
		return i, err
	}
	pins, err = pins.Accept(at, i, accept)
	if errors.Is(err, template.ErrUnknownPublisher) {
		return i, cli.WithHint(usage(err), "ask the publisher for its key; if it is this one: --accept-publisher %s",
			i.Publisher)
	} else if err != nil {
		return i, usage(err)
	}
	if !accept.IsZero() {
		f.app.Say("publisher %s is accepted for %s", i.Publisher, at)
	}
	return i, pins.Save(file)
}

func isURL(at string) bool { return strings.Contains(at, "://") }

// beside is the place of a file in the directory of an index.
func beside(index, name string) string {
	if !isURL(index) {
		return filepath.Join(filepath.Dir(index), name)
	}
	u, err := url.Parse(index)
	if err != nil {
		return index // it was read, so it has a form
	}
	return u.ResolveReference(&url.URL{Path: name}).String()
}

// read reads a file or URL of at most most bytes.
func (f finder) read(ctx context.Context, at string, most int64) (b []byte, err error) {
	if !isURL(at) {
		return cli.ReadFile(at, most)
	}
	if err := web.Check(at); err != nil {
		return nil, err
	}
	c := f.web
	if c == nil {
		if c, err = web.New(web.Config{}); err != nil {
			return nil, err
		}
	}
	body, _, err := c.File([]string{at}, 0).Open(ctx, cid.Undef, 0, most)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err = io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s: more than %d bytes", web.Public(at), most)
	}
	return b, err
}
