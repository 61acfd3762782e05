import sys, ctypes, numpy as np, time
sys.path.insert(0,'.')
from common.oracle import Oracle
from common.problem import Problem, initial_params
from stages.persistent_cluster import fragments, fragment_counts
from tests.stages.numpy_parts import HostDevice
from tests.stages.test_step import random_split
lib=ctypes.CDLL('build/emulator/emu.so')
P=lambda a:ctypes.c_void_p(a.ctypes.data)
def run(steps,batch,inputs,classes,lr=0.1,seed=1,scale=1.0):
    pr=Problem(inputs=inputs,classes=classes,batch_size=batch,learning_rate=lr)
    sp=random_split(steps*batch,inputs,classes,seed=7)
    pairs,tiles=fragment_counts(pr)
    px=sp.pixels().reshape(steps,batch,inputs)
    im,fe=fragments(HostDevice(),list(px))
    lab=sp.labels.astype(np.int32)
    g=np.full((max(steps-1,1),2*pairs,pairs,32,8),np.nan,np.float16)
    assert lib.run_grams(P(im),P(g),steps,pairs,tiles,seed)
    if steps>1:
        # check grams
        ref=np.einsum('if,jf->ij',px[1].astype(float),px[0].astype(float))+1
        G=g[0].astype(float).reshape(2*pairs,pairs,8,4,2,2,2) # owner,pair,g,t,hilo,(b0 b1),e
        got=(G[...,0,:,:]+G[...,1,:,:]) # owner,pair,g,t,b,e
        got=got.transpose(0,2,1,4,3,5).reshape(batch,batch)
        print('gram err',abs(got-ref).max()/ref.max())
    p=initial_params(pr,1); w=(p.weights[0]*np.float32(scale)).copy(); b=p.biases[0].copy(); t=np.array([3.,5.])
    from common.problem import Params
    o=Oracle(pr,Params((w.copy(),),(b.copy(),)))
    t0=time.time()
    w0=w.copy()
    assert lib.run_cluster(P(im),P(fe),P(lab),P(g),P(w),P(b),P(t),steps,pairs,tiles,inputs,classes,ctypes.c_float(lr),1,seed)
    m=o.run_epoch(sp.images,sp.labels)
    rel=lambda a,r,s:np.linalg.norm(a-r)/np.linalg.norm(r-s)
    print(steps,batch,inputs,classes,'dw',rel(w,o.weights[0],w0.astype(float)),'db',rel(b,o.biases[0],0*b),'loss',(t[0]-3)/steps/batch/m.mean_loss-1,'acc',(t[1]-5)/steps/batch-m.accuracy,f'{time.time()-t0:.1f}s',flush=True)
    return w.tobytes(),b.tobytes(),t.tobytes()
if __name__=='__main__':
    pass
    run(1,16,5,3)
    run(3,32,20,10)
    run(4,128,784,10)
    run(4,48,49,16)
    a=run(7,128,300,10,seed=1); c=run(7,128,300,10,seed=2); d=run(7,128,300,10,seed=3); print('same',a==c==d)
    run(3,32,49,10,lr=1.0,scale=300)
    from tests.kernels.cases import neighbour_grams, persistent_cluster
    rng=np.random.default_rng()
    for c in neighbour_grams(rng):
        a=c.copy_args(); assert lib.run_grams(P(a['images']),P(a['grams']),len(a['images']),a['pairs'],a['tiles'],1); print(c, c.mismatch(a) or 'ok')
    for c in persistent_cluster(rng):
        a=c.copy_args(); assert lib.run_cluster(*[P(a[k]) for k in ('images','features','labels','grams','weight','bias','totals')],*[a[k] for k in ('steps','pairs','tiles','inputs','classes')],ctypes.c_float(a['learning_rate']),a['with_totals'],3)
        import tests.kernels.doubles as D
        exp=D.persistent_cluster(**{k:(v.astype(float) if isinstance(v,np.ndarray) and v.dtype==np.float32 else v) for k,v in c.args.items()})
        print(c.args['steps'],c.args['inputs'],c.args['classes'], c.mismatch(a) or 'ok', [(k, float(np.max(np.abs(a[k]-exp[k])/np.maximum(np.asarray(c.bounds[k]),1e-30)))) for k in ('weight','bias')], (a['totals']-exp['totals'])/c.bounds['totals'].clip(1e-9))
