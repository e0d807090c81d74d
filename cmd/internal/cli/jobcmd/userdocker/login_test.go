package userdocker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli/clitest"
)

func auth(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// TestDockerLogin: what docker's own configuration and helpers say, good and bad, for the registry of an image and no other.
func TestDockerLogin(t *testing.T) {
	t.Parallel()
	path := clitest.HelperDir(t)
	plain := fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}, "https://index.docker.io/v1/": {"auth": %q}}}`,
		auth("ada:"+clitest.PullSecret), auth("hub:"+clitest.PullSecret))
	for name, c := range map[string]struct {
		config, image, user, fails string
	}{
		"plain":             {config: plain, image: "registry.example/a/b@sha256:00", user: "ada"},
		"plain, padded":     {config: fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}}}`, auth("ada:"+clitest.PullSecret+"\x00")), image: "registry.example/a", user: "ada"},
		"as a URL":          {config: fmt.Sprintf(`{"auths": {"https://registry.example/v2/": {"auth": %q}}}`, auth("ada:"+clitest.PullSecret)), image: "registry.example/a", user: "ada"},
		"docker hub":        {config: plain, image: "alpine", user: "hub"},
		"docker hub, named": {config: plain, image: "docker.io/library/alpine", user: "hub"},
		"docker hub, two":   {config: plain, image: "ada/thing", user: "hub"},
		"store":             {config: `{"credsStore": "good"}`, image: "registry.example/a", user: "ada"},
		"store, listed":     {config: `{"credsStore": "good", "auths": {"registry.example": {}}}`, image: "registry.example/a", user: "ada"},
		"store, hub":        {config: `{"credsStore": "good"}`, image: "alpine", user: "ada"},
		"helper":            {config: `{"credsStore": "broken", "credHelpers": {"registry.example": "good"}}`, image: "registry.example/a", user: "ada"},
		"helper and auth":   {config: fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}}, "credHelpers": {"registry.example": "good"}}`, auth("old:"+clitest.PullSecret)), image: "registry.example/a", user: "ada"},

		"no file":             {image: "registry.example/a", fails: "run `docker login registry.example`"},
		"empty":               {config: `{}`, image: "registry.example/a", fails: "run `docker login registry.example`"},
		"another registry":    {config: plain, image: "ghcr.example/a", fails: "docker has none for ghcr.example"},
		"a longer name":       {config: plain, image: "registry.example.evil.example/a", fails: "docker has none for registry.example.evil.example"},
		"another port":        {config: plain, image: "registry.example:5000/a", fails: "docker has none for registry.example:5000"},
		"a path like it":      {config: `{"auths": {}}`, image: "evil.example/registry.example/a", fails: "docker has none for evil.example"},
		"store, another":      {config: `{"credsStore": "good"}`, image: "ghcr.example/a", fails: "docker-credential-good has no credentials for ghcr.example"},
		"malformed":           {config: `{"auths": {"registry.example": {"auth": "` + clitest.PullSecret, image: "registry.example/a", fails: "malformed docker configuration"},
		"of another kind":     {config: `{"auths": ["` + clitest.PullSecret + `"]}`, image: "registry.example/a", fails: "malformed docker configuration"},
		"a list":              {config: `[]`, image: "registry.example/a", fails: "malformed docker configuration"},
		"too large":           {config: `{"x": "` + strings.Repeat("x", maxDockerConfig) + `"}`, image: "registry.example/a", fails: "want at most 1048576"},
		"not base64":          {config: `{"auths": {"registry.example": {"auth": "` + clitest.PullSecret + `:::"}}}`, image: "registry.example/a", fails: "no user and password"},
		"no password":         {config: fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}}}`, auth(clitest.PullSecret)), image: "registry.example/a", fails: "no user and password"},
		"empty password":      {config: fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q}}}`, auth("ada:")), image: "registry.example/a", fails: "no user and password"},
		"identity token":      {config: fmt.Sprintf(`{"auths": {"registry.example": {"auth": %q, "identitytoken": %q}}}`, auth("0000:"), clitest.PullSecret), image: "registry.example/a", fails: "only an identity token"},
		"helper's token":      {config: `{"credsStore": "token"}`, image: "registry.example/a", fails: "only an identity token"},
		"helper says nothing": {config: `{"credsStore": "empty"}`, image: "registry.example/a", fails: "gave no credentials"},
		"helper says noise":   {config: `{"credsStore": "garbage"}`, image: "registry.example/a", fails: "gave no credentials"},
		"helper fails":        {config: `{"credsStore": "broken"}`, image: "registry.example/a", fails: "docker-credential-broken has no credentials for registry.example"},
		"helper floods":       {config: `{"credsStore": "floods"}`, image: "registry.example/a", fails: "answer too long"},
		"no such helper":      {config: `{"credsStore": "absent"}`, image: "registry.example/a", fails: "docker-credential-absent, which is not on the PATH"},
		"no program":          {config: `{"credsStore": "plain"}`, image: "registry.example/a", fails: "docker-credential-plain, which is not on the PATH"},
		"a path for a name":   {config: `{"credsStore": "../../bin/sh"}`, image: "registry.example/a", fails: "cannot be run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, dir := loginEnv(t, path, c.config)
			user, password, err := Login(t.Context(), env, c.image)
			switch {
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("%q, %v; want an error with %q", user, err, c.fails)
			case c.fails == "" && (err != nil || user != c.user || password != clitest.PullSecret):
				t.Errorf("%q, right password: %v, %v; want %q", user, password == clitest.PullSecret, err, c.user)
			case c.fails != "" && (user != "" || password != ""):
				t.Error("credentials come with an error")
			}
			if err != nil && (strings.Contains(err.Error(), clitest.PullSecret) || strings.Contains(err.Error(), auth(clitest.PullSecret))) {
				t.Errorf("the error shows what must not be seen: %v", err)
			}
			// From the home directory when nothing else is said.
			env = func(name string) string { return map[string]string{"HOME": filepath.Dir(dir), "PATH": path}[name] }
			if again, _, _ := Login(t.Context(), env, c.image); again != c.user {
				t.Errorf("from the home directory: %q, want %q", again, c.user)
			}
		})
	}
}

// loginEnv is an environment with this configuration of docker, in a directory .docker of its own.
func loginEnv(t *testing.T, path, config string) (Env, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ".docker")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return map[string]string{"DOCKER_CONFIG": dir, "PATH": path}[name] }, dir
}

// A helper that hangs is given up, also when a child of it holds its output open, and interrupting the command ends it at once.
func TestDockerHelperHangs(t *testing.T) {
	t.Parallel()
	env, _ := loginEnv(t, clitest.HelperDir(t), "")
	ended := func(ctx context.Context, helper string, within time.Duration) (string, error) {
		t.Helper()
		type answer struct {
			user string
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			user, _, err := askHelper(ctx, env, helper, "registry.example", within)
			done <- answer{user, err}
		}()
		select {
		case r := <-done:
			return r.user, r.err
		case <-time.After(time.Minute): // the child sleeps for ten
			t.Fatalf("%s is waited for without end", helper)
			return "", nil
		}
	}
	if _, err := ended(t.Context(), "hangs", 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not answer within") || strings.Contains(err.Error(), clitest.PullSecret) {
		t.Errorf("one that hangs: %v", err)
	}
	if user, err := ended(t.Context(), "leaves", time.Minute); err != nil || user != "ada" {
		t.Errorf("one that leaves a child behind: %q, %v", user, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ended(ctx, "hangs", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
