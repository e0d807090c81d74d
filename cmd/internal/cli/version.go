package cli

import (
	"runtime"
	"runtime/debug"
)

// versionInfo is the output of `starling --version`.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source
	Modified bool   `json:"modified,omitempty"` // built from changed source
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildVersion is the build's data in the binary.
func BuildVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// showVersion shows the build's data.
func showVersion(a *App) error {
	v := BuildVersion()
	return a.Show(v, func(t *Table) {
		t.Row("starling", v.Version)
		if v.Revision != "" {
			t.Row("revision", v.Revision)
		}
		t.Row("go", v.Go)
		t.Row("platform", v.Platform)
	})
}
