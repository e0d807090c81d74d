# Starts PostgreSQL with its data on the scratch disk: serve.sh DATABASE
set -eu
export PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin)
[ "$(id -u)" != 0 ] || { chown postgres /scratch; exec setpriv --reuid postgres --regid postgres --clear-groups bash "$0" "$@"; }
initdb --auth=trust --username=postgres >/dev/null
pg_ctl -s -w -o "-k /scratch -c listen_addresses=127.0.0.1" -l /scratch/log start
trap 'pg_ctl -s -w -m fast stop; exit 0' TERM INT
createdb --username=postgres "$1"
echo "ready: database $1"
sleep infinity & wait $!
