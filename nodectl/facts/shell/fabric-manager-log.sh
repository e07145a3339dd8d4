# shellcheck shell=sh
# the file is kept over boots, and its times are local ones, as `uptime -s` has them


log=/var/log/fabricmanager.log
if [ -e "$log" ]; then
  text=$(tail -n 2000 "$log") || exit 1
  printf '%s\n' "$text" | awk -v since="$(uptime -s 2>/dev/null | tr -dc 0-9)" '
    /^\[/ {
      at = index("JanFebMarAprMayJunJulAugSepOctNovDec", substr($1, 2)) ? 1 : 2
      month = (index("JanFebMarAprMayJunJulAugSepOctNovDec", substr($at, at == 1 ? 2 : 1)) + 2) / 3
      clock = substr($(at + 3), 1, 8); gsub(":", "", clock)
      old = since != "" && sprintf("%04d%02d%02d%s", $(at + 2), month, $(at + 1), clock) < since
    }
    !old' | tail -n 400
  exit 0
fi
command -v journalctl >/dev/null 2>&1 || exit 3
systemctl cat nvidia-fabricmanager.service >/dev/null 2>&1 || exit 3
exec journalctl -b -u nvidia-fabricmanager.service -n 400 -o short-iso --no-pager
