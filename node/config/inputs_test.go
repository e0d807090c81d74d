package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestInputs(t *testing.T) {
	t.Parallel()
	for text, reads := range map[string]bool{
		"":                      true,
		"inputs: {urls: false}": false,
		"inputs: {hosts: [data.lan, \"10.0.0.1:9000\"]}":    true,
		"inputs: {urls: false, hosts: [data.lan]}":          false,
		"inputs: {urls: true, hosts: [\"[fd00::1]:9000\"]}": true,
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(path)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if r, err := c.Inputs.Reader(); err != nil || (r != nil) != reads {
			t.Errorf("%s: reader %v, %v", text, r, err)
		}
	}
	c := Default()
	c.Inputs.Hosts = []string{"https://data.lan"}
	if err := c.Validate(); !errors.Is(err, ErrConfig) {
		t.Errorf("a URL for a host: %v", err)
	}
}
