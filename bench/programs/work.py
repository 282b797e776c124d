import sys
def primes(n):
    s=bytearray([1])*(n+1)
    for i in range(2,int(n**.5)+1):
        if s[i]:
            for j in range(i*i,n+1,i): s[j]=0
    return sum(s)-2
def words(n):
    d={}
    for i in range(n):
        k=str(i*7919%10007); d[k]=d.get(k,0)+len(k)
    return sum(d.values())
def fib(n): return n if n<2 else fib(n-1)+fib(n-2)
print(primes(6000000), words(5000000), fib(30))
