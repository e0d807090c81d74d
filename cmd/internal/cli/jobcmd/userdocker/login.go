// Package userdocker reads from the user's own docker: the credentials that `docker login` stored for a registry, and
// the images of its engine. Credentials are in docker's config.json, or in one of its credential helpers. A helper is a
// program that the user has configured there.
package userdocker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	maxDockerConfig = 1 << 20
	// helperTimeout bounds one call of a credential helper. The user may have to type a passphrase meanwhile.
	helperTimeout   = time.Minute
	maxHelperAnswer = 64 << 10
	dockerHub       = "https://index.docker.io/v1/"
)

// dockerConfig is the part of docker's config.json about logins.
type dockerConfig struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // base64 of user:password
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"` // by registry
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Env is the environment: os.Getenv.
type Env func(name string) string

// Login returns the credentials for the registry of an image. Its errors contain no credentials.
func Login(ctx context.Context, env Env, image string) (user, password string, err error) {
	dir := env("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(env("HOME"), ".docker")
	}
	path := filepath.Join(dir, "config.json")
	registry := registryOf(image)
	login := fmt.Errorf("docker has none for %s: run `docker login %s`, or give them with username and passwordFrom",
		registry, registry)
	b, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", login
	}
	if err != nil {
		return "", "", err
	}
	var c dockerConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return "", "", fmt.Errorf("%s: malformed docker configuration: repair it, or use username and passwordFrom",
			path)
	}
	names := []string{registry, "https://" + registry, "https://" + registry + "/v1/", "https://" + registry + "/v2/"}
	if registry == "docker.io" {
		names = append([]string{dockerHub, "index.docker.io"}, names...)
	}
	for _, name := range names {
		if helper := c.CredHelpers[name]; helper != "" {
			return askHelper(ctx, env, helper, name, helperTimeout)
		}
	}
	for _, name := range names {
		entry, ok := c.Auths[name]
		switch {
		case !ok:
		case entry.IdentityToken != "": // beside it, auth has no password
			return "", "", tokenOnly(registry)
		case entry.Auth != "":
			plain, err := base64.StdEncoding.DecodeString(entry.Auth)
			user, password, ok := strings.Cut(string(plain), ":")
			password = strings.TrimRight(password, "\x00")
			if err != nil || !ok || user == "" || password == "" {
				return "", "", fmt.Errorf("%s: no user and password for %s: run `docker login "+
					"%[2]s` again", path, name)
			}
			return user, password, nil
		case c.CredsStore != "":
			return askHelper(ctx, env, c.CredsStore, name, helperTimeout)
		}
	}
	if c.CredsStore != "" {
		return askHelper(ctx, env, c.CredsStore, names[0], helperTimeout)
	}
	return "", "", login
}

// readFile reads docker's configuration.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxDockerConfig {
		return nil, fmt.Errorf("%s: too large: got %d bytes, want at most %d", path, info.Size(), maxDockerConfig)
	}
	return os.ReadFile(path)
}

// tokenOnly returns the error for an identity token, which grants all rights of its user.
func tokenOnly(registry string) error {
	return fmt.Errorf("docker has only an identity token for %s, which a provider must not get: make an access token "+
		"and give it with passwordFrom", registry)
}

// registryOf returns the registry host of an image.
func registryOf(image string) string {
	host, _, slash := strings.Cut(image, "/")
	if !slash || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}

// askHelper runs one of docker's credential helpers, which the user has installed and named in docker's configuration.
// Errors do not contain its output.
func askHelper(ctx context.Context, env Env, helper, registry string, within time.Duration) (user, password string,
	err error) {
	if !helperName.MatchString(helper) {
		return "", "", fmt.Errorf("docker's configuration names a credential helper that cannot be run: %.80q", helper)
	}
	program := "docker-credential-" + helper
	path, ok := findProgram(env, program)
	if !ok {
		return "", "", fmt.Errorf("docker's configuration names the credential helper %s, which is not on the PATH",
			program)
	}
	hctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out := &bounded{most: maxHelperAnswer}
	c := exec.CommandContext(hctx, path, "get")
	c.Stdin, c.Stdout = strings.NewReader(registry), out
	c.WaitDelay = time.Second // its children may hold its output open
	switch err = c.Run(); {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case hctx.Err() != nil:
		return "", "", fmt.Errorf("%s did not answer within %v: unlock it, or give the credentials with username and "+
			"passwordFrom", program, within)
	case out.over:
		return "", "", fmt.Errorf("%s: answer too long for %s: want at most %d bytes", program, registry,
			maxHelperAnswer)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", "", fmt.Errorf("%s has no credentials for %s (run `docker login %[2]s`): %w", program, registry, err)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.buf.Bytes(), &answer) != nil || answer.Secret == "" {
		return "", "", fmt.Errorf("%s gave no credentials for %s: run `docker login %[2]s`", program, registry)
	}
	if answer.Username == "<token>" {
		return "", "", tokenOnly(registry)
	}
	return answer.Username, answer.Secret, nil
}

// findProgram finds an executable on the PATH, in its absolute directories alone.
func findProgram(env Env, name string) (path string, ok bool) {
	for _, dir := range filepath.SplitList(env("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, true
		}
	}
	return "", false
}

// bounded stores written data and returns an error after most bytes.
type bounded struct {
	buf  bytes.Buffer
	most int
	over bool
}

// Write appends p, or returns an error if that exceeds the bound.
func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.most {
		b.over = true
		return 0, os.ErrInvalid
	}
	return b.buf.Write(p)
}
