// Package templatecmd has the commands for templates of jobs: it lists, shows, checks and publishes them, and adds
// --template to `starling run`. A template is named by
//
//	NAME           a built-in template
//	./DIRECTORY    a directory; its path has a slash
//	INDEX#NAME     a template of an index, at a path or https:// URL, whose publisher the user has accepted
package templatecmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
)

// New makes the command `starling job template` with the commands below it.
func New(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupJobs, &cobra.Command{
		Use:   "template",
		Short: "List, check and publish templates of jobs",
		Long: `A template is a directory with a job file that has parameters, a README.md of three lines, and perhaps a
Dockerfile and other files. starling run --template NAME runs it; --set PARAMETER=VALUE sets parameters.

TEMPLATE is the NAME of a built-in template, a ./DIRECTORY, or INDEX#NAME: a template of an index, which is a file at a
path or https:// URL, signed by its publisher. The first use of an index needs --accept-publisher KEY. The key is kept
in templates.json of the home directory; ask the publisher for it on another way than the index.

A template has no secrets, credentials, webhooks, prices or choice of providers, and reads no file of yours but those
that you name with --set. It is a directory of this form:

  job.yaml      a job file, and the fields parameters and smoke
  README.md     the purpose; Needs: …; Example: starling run --template …
  Dockerfile    optional, builds the image

  apiVersion: v1
  kind: Job                                 or Cluster
  metadata: {name: transcode}
  parameters:
    image: {default: "acme/ffmpeg:7", about: image with ffmpeg}
    video: {about: file or URL of the video, input: true}      required, as it has no default
  smoke: {set: {video: test.mp4}, prints: done, needs: [gpu]}  a short run, and a part of its output
  spec:                                     as in starling submit --help, without payment and secrets
    image: ${image}
    inputs: [{src: "${video}", dst: /in/video}]

${NAME} stands in values, and not in blocks of text; write $${ for the text ${. An input's source is a file of the
template, an https:// URL with its sha256, or a parameter with input: true.`,
		Example: `  starling job template ls
  starling job template show ffmpeg
  starling job template check ./transcode
  starling job template publish --to public ./transcode ./train`,
	}, newLs(a), newShow(a), newCheck(a), newPublish(a))
}
