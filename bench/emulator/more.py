from test import run
ref=None
for s in range(8):
    r=run(9,48,70,10,seed=s); ref=ref or r; assert r==ref
ref=None
for s in range(6):
    r=run(6,128,784,10,seed=s+100); ref=ref or r; assert r==ref
run(1,128,784,10); run(2,64,784,10); print("ok")
