#!/bin/bash
set -eu
touch ~/.cache-of-a-library /data/file result /tmp/file
umask 077 && mkdir -p ~/.ssh
echo "$(id -un) of $HOME in $PWD, data of $(stat -c %U /data)"
