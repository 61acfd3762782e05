cd build/emulator; rm -f emu.so; python3 - <<'P'
K='./stages/kernels/'
for f in ('epoch.cuh','backward_warp.cuh','forward_warp.cuh','head_warp.cuh'): open('build/emulator/fake/'+f,'w').write(open(K+f).read())
s=open(K+'persistent_cluster.cu').read()
s=s.replace("__shared__ Shared shared;","Shared& shared = *(Shared*)block_shared(cur_rank);")
open('build/emulator/pc.inc','w').write(s)
open('build/emulator/ng.inc','w').write(open(K+'neighbour_grams.cu').read())
P
g++ -O2 -g -std=c++20 -fPIC -shared -Ifake -I. emu.cpp -o emu.so 2>&1 | grep -E 'error|warning: unused' | head
