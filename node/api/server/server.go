package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server/failure"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/wholefile"
)

const headerWait = 10 * time.Second

// Access has the API keys and the jobs submitted with them.
type Access interface {
	// KeyOf returns the name of the API key that a token belongs to.
	KeyOf(token string) (name string, ok bool)
	Job(id string) (record.Job, error)
}

// Server serves the API.
type Server struct {
	access  Access
	handler http.Handler
	log     *slog.Logger
	token   string
	path    string // of the endpoint file
	ln      door

	useMu sync.Mutex
	using int       // requests under way
	used  time.Time // end of the last one; before the first, the start
}

// Idle returns the time since the last request with a token ended, or 0 while one is under way.
func (s *Server) Idle() time.Duration {
	s.useMu.Lock()
	defer s.useMu.Unlock()
	if s.using > 0 {
		return 0
	}
	return time.Since(s.used)
}

// use counts a request until the returned function is called.
func (s *Server) use() (done func()) {
	s.useMu.Lock()
	defer s.useMu.Unlock()
	s.using++
	return func() {
		s.useMu.Lock()
		defer s.useMu.Unlock()
		s.using--
		s.used = time.Now()
	}
}

// Listen opens the API and writes the endpoint file at path. It listens on addr, which must be a loopback address, or
// if that is empty on a unix socket beside the file. It serves the routes, and those of the API itself, once Run is
// called.
func Listen(addr, path string, access Access, routes []route.Bound, log *slog.Logger) (*Server, error) {
	var token [24]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	ln, err := open(addr, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("opening the local api: %w", err)
	}
	s := &Server{access: access, log: log, token: hex.EncodeToString(token[:]), path: path, ln: ln, used: time.Now()}
	if s.handler, err = s.mux(routes); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the local api: %w", err), ln.Close())
	}
	ep := ln.endpoint()
	ep.Token, ep.PID = s.token, os.Getpid()
	b, err := json.Marshal(ep)
	if err == nil {
		err = wholefile.Write(path, b, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing %s: %w", filepath.Base(path), err), ln.Close())
	}
	return s, nil
}

// Where is the socket or the URL where the API listens.
func (s *Server) Where() string {
	if ep := s.ln.endpoint(); ep.Socket == "" {
		return ep.URL
	}
	return s.ln.socket
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if err := serveHTTP(ctx, s.ln.Listener, s.handler, s.log); err != nil {
		return fmt.Errorf("serving the local api: %w", err)
	}
	return errors.Join(os.Remove(s.path), s.ln.gone())
}

func (s *Server) mux(routes []route.Bound) (http.Handler, error) {
	routes = slices.DeleteFunc(slices.Concat(routes, bindSelf()), func(b route.Bound) bool {
		return b.Access == route.Socket && s.ln.socket == "" // over TCP every user of this machine could read it
	})
	return route.Mux(routes, s.guard)
}

// guard checks the token and writes errors.
func (s *Server) guard(o route.Operation, w http.ResponseWriter, r *http.Request, serve func(*http.Request) error) {
	if o.Access == route.Owner || o.Access == route.Keys {
		defer s.use()()
		var err error
		if r, err = s.admit(o, r); err != nil {
			route.Fail(w, failure.Of(err))
			return
		}
	}
	if err := serve(r); err != nil && r.Context().Err() == nil {
		route.Fail(w, failure.Of(err))
	}
}

type keyContext struct{}

// keyName is the name of the API key that a request came with, or empty for the peer's own token.
func keyName(ctx context.Context) string {
	name, _ := ctx.Value(keyContext{}).(string)
	return name
}

// admit reports whether a request may be made with its token, and returns the request as the handlers see it.
func (s *Server) admit(o route.Operation, r *http.Request) (*http.Request, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, key := s.access.KeyOf(token)
	switch {
	case !ok || !key && subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1:
		return nil, &api.Error{
			Status: http.StatusUnauthorized, Code: "unauthorized",
			Message: "the request does not carry this peer's token",
			Hint:    "read the token from api.json in the peer's home directory",
		}
	case !key:
		return r, nil
	case o.Access != route.Keys:
		return nil, &api.Error{
			Status: http.StatusForbidden, Code: "forbidden",
			Message: fmt.Sprintf("key %s may not do this: it is for the peer's own token", name),
		}
	}
	if id := r.PathValue("id"); id != "" {
		j, err := s.access.Job(id)
		if err == nil && j.Key != name {
			err = fmt.Errorf("%w: %q", record.ErrNoJob, id) // as if it were not there
		}
		if err != nil {
			return nil, err
		}
	}
	return r.WithContext(context.WithValue(r.Context(), keyContext{}, name)), nil
}

// bindSelf binds the routes of the API itself.
func bindSelf() []route.Bound {
	return []route.Bound{
		api.GetAlive.Bind(func(w http.ResponseWriter, _ *http.Request, _ api.None) error {
			_, err := w.Write([]byte("ok\n"))
			return err
		}),
		api.GetDocument.Bind(func(w http.ResponseWriter, _ *http.Request, _ api.None) error {
			b, err := api.Document()
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(b) // a caller that has gone needs no answer
			return nil
		}),
	}
}
