package job

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/runtime"
)

// Secret is a value that only the job's provider may read. The job has its name and the source of its value; the value
// itself is in the job's Values.
type Secret struct {
	Name string `json:"name"`
	// Env is the variable that the program finds it in; empty: it is a file under /run/secrets.
	Env string `json:"env,omitempty"`
	// File is the file's name if it is not Name.
	File string `json:"file,omitempty"`
	// From is where the user's side reads it: "env:VARIABLE" or "file:PATH".
	From string `json:"from"`
}

// FileName returns the secret's file under /run/secrets; "" if it is a variable.
func (s Secret) FileName() string {
	switch {
	case s.Env != "":
		return ""
	case s.File != "":
		return s.File
	}
	return s.Name
}

// Registry is the credentials for the image's registry.
type Registry struct {
	// Docker takes the credentials of the user's own `docker login`; the other two are empty then.
	Docker       bool   `json:"docker,omitempty"`
	Username     string `json:"username,omitempty"`
	PasswordFrom string `json:"passwordFrom,omitempty"` // as Secret.From
}

// The sources of a secret's value.
const (
	FromEnv  = "env:"
	FromFile = "file:"

	maxUsername = 256
	maxFrom     = 4096
)

var secretName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

func validSecret(name string) bool { return len(name) <= 128 && secretName.MatchString(name) }

func checkSecrets(j Job, ps *problems) {
	if len(j.Secrets) > runtime.MaxSecrets {
		ps.add("spec.secrets", "%d secrets, at most %d", len(j.Secrets), runtime.MaxSecrets)
		return
	}
	for i, s := range j.Secrets {
		field := fmt.Sprintf("spec.secrets[%d]", i)
		others := j.Secrets[:i]
		_, plain := j.Env[s.Env]
		switch {
		case !validSecret(s.Name):
			ps.add(field+".name", "%.80q is not a name: want 1 to 128 of letters, digits, '.', '_' and '-'", s.Name)
		case slices.ContainsFunc(others, func(o Secret) bool { return o.Name == s.Name }):
			ps.add(field+".name", "%q is listed twice", s.Name)
		case s.Env != "" && s.File != "":
			ps.add(field, "want env or file, not both")
		case s.Env != "" && !names.IsVariable(s.Env):
			ps.add(field+".env", "%.80q is not a variable's name", s.Env)
		case strings.HasPrefix(s.Env, "STARLING_"):
			ps.add(field+".env", "names with STARLING_ are set by the network")
		case s.Env != "" && (plain || slices.ContainsFunc(others, func(o Secret) bool { return o.Env == s.Env })):
			ps.add(field+".env", "%s is given twice", s.Env)
		case s.File != "" && !validSecret(s.File):
			ps.add(field+".file", "file name: got %.80q, want a name in %s", s.File, runtime.SecretsDir)
		case s.Env == "" && slices.ContainsFunc(others, func(o Secret) bool { return o.FileName() == s.FileName() }):
			ps.add(field+".file", "%s is given twice", s.FileName())
		}
		checkFrom(ps, field+".from", s.From)
	}
	if r := j.Registry; r != nil {
		switch {
		case r.Docker && (r.Username != "" || r.PasswordFrom != ""):
			ps.add("spec.registryAuth", "want docker, or username and passwordFrom")
		case r.Docker:
		case r.Username == "" || len(r.Username) > maxUsername || !names.IsText(r.Username) ||
			strings.ContainsAny(r.Username, ":\r\n"):
			ps.add("spec.registryAuth.username", "want 1 to %d bytes without a colon", maxUsername)
		}
		if !r.Docker {
			checkFrom(ps, "spec.registryAuth.passwordFrom", r.PasswordFrom)
		}
	}
}

// checkFrom checks the form of a place to read a secret from. A wrong text is never shown: it may be the secret itself.
func checkFrom(ps *problems, field, from string) {
	env, isEnv := strings.CutPrefix(from, FromEnv)
	file, isFile := strings.CutPrefix(from, FromFile)
	switch {
	case isEnv && names.IsVariable(env):
	case isFile && file != "" && len(file) <= maxFrom && names.IsText(file) && !strings.ContainsAny(file, "\r\n"):
	case from == "":
		ps.add(field, "missing: env:VARIABLE or file:PATH, where your side reads the value")
	default:
		ps.add(field, "a secret's value does not belong here: want env:VARIABLE or file:PATH, where your side "+
			"reads it (value hidden)")
	}
}

// secretsIn takes the relative files of secrets from dir.
func secretsIn(j Job, dir string) Job {
	rebase := func(from string) string {
		if file, ok := strings.CutPrefix(from, FromFile); ok && !filepath.IsAbs(file) {
			return FromFile + filepath.Join(dir, file)
		}
		return from
	}
	j.Secrets = slices.Clone(j.Secrets)
	for i := range j.Secrets {
		j.Secrets[i].From = rebase(j.Secrets[i].From)
	}
	j.Webhooks = slices.Clone(j.Webhooks)
	for i := range j.Webhooks {
		j.Webhooks[i].SecretFrom = rebase(j.Webhooks[i].SecretFrom)
	}
	if j.Registry != nil {
		r := *j.Registry
		r.PasswordFrom = rebase(r.PasswordFrom)
		j.Registry = &r
	}
	return j
}

// Values are the secrets of a job. They travel beside it, are written nowhere but sealed, and print as nothing.
type Values struct {
	Secrets  map[string][]byte `json:"secrets,omitempty"`  // by Secret.Name
	Username string            `json:"username,omitempty"` // of the image's registry
	Password string            `json:"password,omitempty"`
	Webhooks map[int][]byte    `json:"webhooks,omitempty"` // by place in Job.Webhooks
}

// Format hides the values in logs and errors, for every verb.
func (v Values) Format(w fmt.State, _ rune) {
	_, _ = io.WriteString(w, "[secrets]") // a State is a buffer
}

// CheckFor checks the values against the names in the job: each is there, and nothing else. The error is an *Error.
func (v Values) CheckFor(j Job) error {
	var ps problems
	total := 0
	for i, s := range j.Secrets {
		value, ok := v.Secrets[s.Name]
		total += len(value)
		field := fmt.Sprintf("spec.secrets[%d]", i)
		if !ok {
			ps.add(field, "the value of %s is missing", s.Name)
		} else if s.Env != "" && (!names.IsText(string(value)) || len(value) > MaxText) {
			ps.add(field, "the value of %s cannot be a variable: want text of at most %d bytes without NUL", s.Name,
				MaxText)
		}
	}
	if total > runtime.MaxSecretBytes {
		ps.add("spec.secrets", "%d bytes, at most %d", total, runtime.MaxSecretBytes)
	}
	hooks := 0
	for i, w := range j.Webhooks {
		if w.SecretFrom == "" {
			continue
		}
		hooks++
		if n := len(v.Webhooks[i]); n == 0 || n > MaxText {
			ps.add(fmt.Sprintf("spec.webhooks[%d].secretFrom", i), "the value is missing or has more than %d bytes",
				MaxText)
		}
	}
	if len(v.Secrets) > len(j.Secrets) || len(v.Webhooks) > hooks {
		ps.add("spec.secrets", "there are values that the job does not name")
	}
	switch given := v.Username != "" || v.Password != ""; {
	case j.Registry == nil && given:
		ps.add("spec.registryAuth", "there are credentials that the job does not name")
	case j.Registry != nil && v.Password == "" && !j.Registry.Docker:
		ps.add("spec.registryAuth", "the password is missing")
	case len(v.Username) > maxUsername || len(v.Password) > MaxText || !names.IsText(v.Username) ||
		!names.IsText(v.Password):
		ps.add("spec.registryAuth", "want text of at most %d and %d bytes without NUL", maxUsername, MaxText)
	}
	return ps.err()
}
