# shellcheck shell=sh

cd /sys/devices/system/edac/mc 2>/dev/null || exit 3
for mc in mc[0-9]*; do
  [ -d "$mc" ] || exit 3
  ce= ue= kind= size=
  read -r ce <"$mc/ce_count"; read -r ue <"$mc/ue_count"
  read -r kind <"$mc/mc_name"; read -r size <"$mc/size_mb"
  printf '%s\tcorrected=%s\tuncorrected=%s\tsize_mib=%s\tkind=%s\n' "$mc" "$ce" "$ue" "$size" "$kind"
done 2>/dev/null
