#!/bin/sh
# make-users.sh [--dashboard] SECRETS [QUEUES...]: prints an ACL file for Redis with the users of config/acl, for the queue `default` or for
# the named ones. Each user has its own password, the first line of a file in the folder SECRETS:
#   producer_password, worker_password, operator_password    of the queue default: sluice-producer and so on
#   mail_producer_password ...                               of another queue, here mail: sluice-producer-mail
#   admin_password                                           if it exists, `admin` may do everything
#   replica_password                                         if it exists, replicas and sentinels log in as sluice-replica
#   own.acl                                                  if it exists, its lines are printed, too: users of other programs
# Queues joined by commas, such as default,mail, share the users of the first: a daemon has one login for all of its queues.
# Without --dashboard and QUEUES they are those of the last time, which the file SECRETS/arguments keeps: Redis drops the
# users that a new ACL file lacks.
# With --dashboard the workers' users also get the rights that a daemon's dashboard needs: pause and resume their queue,
# say where a request is, find the other queues of this Redis, and read how much waits there (no request).
# Nobody else can log in: Redis' user `default` is off. It keeps all rights, because Redis replays its append-only file with
# them, and silently omits commands that they do not allow, at every start. The output has hashes and no passwords, and no
# password ever appears in the arguments of a process. Nothing is printed when a password is missing or empty.
set -eu
usage='usage: make-users.sh [--dashboard] SECRETS [QUEUES...]
Prints an ACL file for Redis. SECRETS is the folder of the passwords; without options and queues they are those of the last time.'
case ${1-} in
  -h | --help) printf '%s\n' "$usage"; exit 0 ;;
  --dashboard) folder=${2-} ;;
  *) folder=${1-} ;;
esac
case $folder in '' | -*) printf '%s\n' "$usage" >&2; exit 64 ;; esac
[ -d "$folder" ] || { echo "make-users: there is no folder $folder" >&2; exit 66; }
kept=$folder/arguments
if [ $# -eq 1 ] && [ -r "$kept" ]; then
  last=$(cat "$kept")
  echo "make-users: as the last time: $last" >&2
  # shellcheck disable=SC2086 # several words
  case $last in --dashboard\ *) set -- --dashboard "$folder" ${last#* } ;; *) set -- "$folder" $last ;; esac
fi
option=
dashboard=
if [ "$1" = --dashboard ]; then
  option='--dashboard '
  dashboard=' (~sluice:{default}:paused +set +del) (%R~sluice:{default}:later +zscore) +scan'
  dashboard="$dashboard (%R~sluice:{*}:requests %R~sluice:{*}:requests:high %R~sluice:{*}:requests:low %R~sluice:{*}:meta"
  dashboard="$dashboard %R~sluice:{*}:stats %R~sluice:{*}:workers %R~sluice:{*}:alive:* %R~sluice:{*}:later"
  dashboard="$dashboard %R~sluice:{*}:dead +exists +xlen +xpending +xinfo|stream +hmget +hgetall +zcard +zcount +memory|usage) (%R~sluice:{*}:paused +get +pexpiretime)"
  shift
fi
secrets=$1
shift
for queues; do
  case $queues in '' | -* | *[!a-z0-9_.,-]*) printf '%s\n' "$usage" >&2; exit 64 ;; esac
done
[ $# -gt 0 ] || set -- default
acl=$(dirname "$0")/acl
cr=$(printf '\r')
users='user default off resetpass ~* &* +@all'

# The password of $1 as Redis stores it.
hash_of() {
  [ -r "$secrets/$1" ] || { echo "make-users: $secrets/$1 cannot be read" >&2; exit 78; }
  IFS= read -r password < "$secrets/$1" || [ -n "$password" ] || password=
  password=${password%%"$cr"*}
  [ -n "$password" ] || { echo "make-users: the first line of $secrets/$1 is empty: an empty password lets everybody in" >&2; exit 78; }
  sum=$(printf %s "$password" | sha256sum)
  hash="#${sum%% *}"
}

for queues; do
  queue=${queues%%,*} prefix= suffix=
  [ "$queue" = default ] || { prefix=${queue}_ suffix=-$queue; }
  patterns=$(printf %s "$queues" | sed 's/[^,]*/\\1&\\2/g; s/,/ /g') # each key pattern, once per queue
  for role in producer worker operator; do
    hash_of "$prefix${role}_password"
    more=
    [ "$role" != worker ] || more=$dashboard
    user=$(sed "s/\$/$more/; s/^user sluice-$role /user sluice-$role$suffix /; s/ resetpass / resetpass $hash /
      s/\([^ (]*~[^ ]*{\)default\(}[^ )]*\)/$patterns/g" "$acl/$role.acl")
    users="$users
$user"
  done
done
if [ -e "$secrets/admin_password" ]; then
  hash_of admin_password
  users="$users
user admin on resetpass $hash ~* &* +@all"
fi
if [ -e "$secrets/replica_password" ]; then
  hash_of replica_password
  users="$users
$(sed "s/ resetpass / resetpass $hash /" "$acl/replica.acl")"
fi
if [ -e "$secrets/own.acl" ]; then
  own=$(cat "$secrets/own.acl") || exit 78
  users="$users
$own"
fi
if [ "$option$*" != default ] || [ -e "$kept" ]; then
  printf '%s\n' "$option$*" > "$kept" || echo "make-users: name the same queues and options the next time, too" >&2
fi
printf '%s\n' "$users"
